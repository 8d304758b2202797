// The subcommands: each adds its options to the program and runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "vireo/vireo.h"

namespace vireo::app {

// What main runs after parsing; the exit code.
using Action = std::function<int()>;

// The options of Engine::load, the same for every subcommand that loads a model.
void add_engine_options(CLI::App& command, Options& options);

// --wq PROJECTION=TIER, any number of times.
CLI::Option* add_wq_option(CLI::App& command, std::map<std::string, std::string>& overrides);

void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_fidelity(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_random_checkpoint(CLI::App& app, Action& action);
// These two tell of all subcommands, whenever they are added.
void add_completion(CLI::App& app, Action& action);
void add_manual(CLI::App& app, Action& action);

}  // namespace vireo::app
