// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "commands.h"
#include "terminal.h"

namespace vireo::app {

CLI::Option* add_wq_option(CLI::App& command, std::map<std::string, std::string>& overrides) {
  const auto add = [&overrides](const std::vector<std::string>& values) {
    for (const std::string& v : values) {
      const size_t equals = v.find('=');
      if (equals == std::string::npos) throw CLI::ValidationError("--wq " + v, "write PROJECTION=TIER");
      overrides[v.substr(0, equals)] = v.substr(equals + 1);
    }
  };
  return command
      .add_option_function<std::vector<std::string>>("--wq", add,
                                                     "tier of one projection, e.g. lm_head=w8 or L0.gate_up=bf16")
      ->type_name("PROJ=TIER");
}

void add_engine_options(CLI::App& command, Options& o) {
  o.hub_cache = hub_cache();
  const std::string group = "Model";
  command.add_option("-m,--checkpoint,--model", o.checkpoint, "folder, or ORG/NAME in the local Hugging Face cache")
      ->type_name("DIR|ORG/NAME")
      ->group(group);
  command
      .add_option("--device", o.device,
                  "auto (a GPU if there is one, else the CPU), cpu, reference (slow, exact), cuda or cuda:N")
      ->type_name("NAME:{auto,cpu,reference,cuda}")
      ->capture_default_str()
      ->group(group);
  command.add_option("-c,--max-seq,--ctx-size,--max-model-len", o.max_seq, "tokens of prompt and answer together")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-pixels", o.max_pixels,
                  "pixels per picture: auto, none (the checkpoint's own limit) or a number")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--pixels", o.pixels,
                  "default, or reference: alpha dropped and 16-bit grey saturated as the reference does")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--weight-mode", o.weight_mode,
          "tier in which decode steps read the decoder's weights: bf16, w8, w4, int8, int4, nvfp4, or auto (that of a "
          "quantised checkpoint, else bf16)")
      ->capture_default_str()
      ->group(group);
  command.add_option("--kv-mode", o.kv_mode, "how keys and values are kept: bf16 or int8")
      ->capture_default_str()
      ->group(group);
  add_wq_option(command, o.wq_overrides)->group(group);
  command
      .add_flag("--low-memory", o.low_memory,
                "keep no BF16 copy of what has a tier: prefill reads the codes too, more slowly")
      ->group(group);
  command
      .add_flag_callback(
          "--no-graph", [&o] { o.graph = false; },
          "walk the model op by op instead of replaying a recorded step; on a CPU that is always so")
      ->group(group);
  command.add_option("-t,--threads", o.threads, "0: every processor this process may use")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--isa", o.isa,
                  "instruction set of the CPU kernels: auto, avx512_bf16, avx512, avx2, neon_bf16, neon, portable")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kernels", o.kernels,
                  "of the GPU: 87 for those of compute_87, 0 for the best that this build has for it")
      ->type_name("INT:{0,87}")
      ->capture_default_str()
      ->group(group);
  command.add_option("--prefill-chunk", o.prefill_chunk, "rows of one prefill step; 0: 512, or 2048 on a GPU")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--prefill-graph", o.prefill_graph,
                "record a GPU's prefill too, and replay it for prompts of the same sizes; the latest 8 are kept")
      ->group(group);
  command
      .add_option("--gemm-candidates", o.gemm_candidates,
                  "algorithms of cuBLASLt among which timing chooses at load; 1: its first choice")
      ->capture_default_str()
      ->group(group);
}

}  // namespace vireo::app
