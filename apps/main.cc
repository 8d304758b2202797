// vireo: one program, a subcommand per task.
// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "commands.h"
#include "terminal.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  vireo run --checkpoint models/tiny --image photo.jpg --prompt "Describe this image."
  vireo run --checkpoint Qwen/Qwen3-VL-2B-Instruct --prompt "Hello" --stats
  vireo chat --checkpoint models/tiny
  vireo inspect models/tiny
  vireo quantize --checkpoint models/tiny --weight-mode w8 --out tiny-w8
  vireo doctor

Exit codes: 0 done; 1 the input or the run failed; 2 wrong usage or a refused option value; 130 and 143 on signals.)";

// CLI11 says "Could not convert: --max-seq = 99999999999".
std::string sentence_of(const CLI::ParseError& e) {
  const std::string text = e.what(), prefix = "Could not convert: ";
  const bool value = text.rfind(prefix, 0) == 0;
  return (value ? text.substr(prefix.size()) + " is not a number that this option takes" : text) +
         " (see vireo --help)";
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Vireo runs Qwen3-VL vision-language models from their stock checkpoints."};
  app.name("vireo");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("vireo ") + vireo::version());
  vireo::app::Action action;
  vireo::app::add_run(app, action);
  vireo::app::add_chat(app, action);
  vireo::app::add_inspect(app, action);
  vireo::app::add_bench(app, action);
  vireo::app::add_fidelity(app, action);
  vireo::app::add_doctor(app, action);
  vireo::app::add_quantize(app, action);
  vireo::app::add_random_checkpoint(app, action);
  vireo::app::add_completion(app, action);
  vireo::app::add_manual(app, action);
  const auto named = [&](const CLI::App* c) { return c->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    vireo::app::print_error(std::string("'") + argv[1] + "' is not a subcommand (see vireo --help)");
    return vireo::app::kWrongUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    vireo::app::print_error(sentence_of(e));
    return vireo::app::kWrongUsage;
  }
  return action();
}

// What a picture took stays with the program: the next one would pay for new pages again, half of the time to resize it.
void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  keep_memory();
  try {
    return parse_and_run(argc, argv);
  } catch (const vireo::Error& e) {
    vireo::app::print_error(e.what());
    return vireo::app::exit_code(e);
  } catch (const std::bad_alloc&) {
    vireo::app::print_error("out of memory: free some, or lower --max-seq or --max-pixels");
  } catch (const std::exception& e) {
    vireo::app::print_error(std::string("unexpected error: ") + e.what());
  }
  return vireo::app::kFailed;
}
