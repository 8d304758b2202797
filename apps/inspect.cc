// vireo inspect and vireo doctor: what a checkpoint holds, what a text or picture becomes, what this machine can do.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "stored_tiers.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string checkpoint, text, image, max_pixels = "none";
  bool json = false;
  bool tensors = false;
  bool has_text = false;
};

std::string dump(const Json& j) {
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string shape_of(const TensorInfo& t) {
  return fmt::format("[{}]", fmt::join(t.shape, ", "));
}

Json checkpoint_json(const CheckpointInfo& info, bool with_tensors) {
  Json j = {{"folder", info.folder.string()},
            {"model_type", info.model_type},
            {"config", Json::parse(info.config)},
            {"text_parameters", info.text_parameters},
            {"vision_parameters", info.vision_parameters},
            {"tensors", info.tensors.size()},
            {"tensor_bytes", info.tensor_bytes},
            {"kv_bytes_per_token", info.kv_bytes_per_token},
            {"chat_template", info.chat_template},
            {"eos_tokens", info.eos_tokens},
            {"min_pixels", info.min_pixels},
            {"max_pixels", info.max_pixels}};
  for (const auto& [tier, bytes] : info.weight_bytes) j["weight_bytes"][tier] = bytes;
  if (!info.tiers.empty()) j["quantised"] = {{"keep_bf16", info.keeps_bf16}, {"tiers", tiers_json(info.tiers)}};
  if (!info.folded_by.empty())
    j["quantised"]["folded"] = {{"calibration", info.folded_by}, {"conversations", info.folded_conversations}};
  if (!info.chat_template_note.empty()) j["note"] = info.chat_template_note;
  if (!with_tensors) return j;
  j["tensors"] = Json::array();
  for (const TensorInfo& t : info.tensors) {
    j["tensors"].push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}, {"file", t.file}});
  }
  return j;
}

void print_checkpoint(const CheckpointInfo& info) {
  const Json config = Json::parse(info.config);
  const Json &text = config["text"], &vision = config["vision"];
  const auto n = [](const Json& j, const char* key) { return j[key].get<int64_t>(); };
  std::cout << fmt::format("{}  {}\n", info.model_type, info.folder.string());
  std::cout << fmt::format("text      {} layers of {}, {} query and {} KV heads of {}, vocabulary {}{}\n",
                           n(text, "num_layers"), n(text, "hidden_size"), n(text, "num_heads"), n(text, "num_kv_heads"),
                           n(text, "head_dim"), n(text, "vocab_size"),
                           config["tied_head"].get<bool>() ? ", tied head" : "");
  if (text.contains("num_experts")) {
    std::cout << fmt::format("experts   {}, {} per token, of {}\n", n(text, "num_experts"),
                             n(text, "experts_per_token"), n(text, "moe_intermediate_size"));
  }
  std::cout << fmt::format("vision    {} blocks of {}, {} heads of {}, DeepStack after {}\n", n(vision, "depth"),
                           n(vision, "hidden_size"), n(vision, "num_heads"), n(vision, "head_dim"),
                           vision["deepstack_layers"].dump());
  std::cout << fmt::format("size      {} parameters ({} text, {} vision) in {} tensors, {}\n",
                           info.text_parameters + info.vision_parameters, info.text_parameters, info.vision_parameters,
                           info.tensors.size(), megabytes(info.tensor_bytes));
  std::cout << fmt::format("memory    KV cache {} bytes a token ({} at 4096)\n", info.kv_bytes_per_token,
                           megabytes(info.kv_bytes_per_token * 4096));
  for (const auto& [tier, bytes] : info.weight_bytes) {
    std::cout << fmt::format("          weights as {:<9} {}{}\n", tier, megabytes(bytes),
                             tier == "bf16" ? "" : "  (with --low-memory)");
  }
  if (!info.tiers.empty()) {
    std::cout << "quantised codes and scales " << (info.keeps_bf16 ? "beside the bf16 weights\n" : "alone\n");
    print_tiers(info.tiers);
    if (!info.folded_by.empty()) {
      std::cout << fmt::format("          calibrated with {} ({} conversations)\n", info.folded_by,
                               info.folded_conversations);
    }
  }
  std::cout << fmt::format("pictures  {} to {} pixels each\n", info.min_pixels, info.max_pixels);
  std::cout << fmt::format("template  {}, an answer ends with token {}\n", info.chat_template,
                           fmt::join(info.eos_tokens, " or "));
  if (!info.chat_template_note.empty()) print_note(info.chat_template_note);
}

void inspect_text(const InspectOptions& o) {
  const auto tokens = tokenize(o.checkpoint, hub_cache(), o.text);
  Json list = Json::array();
  for (const TokenInfo& t : tokens) {
    list.push_back({{"id", t.id}, {"text", t.text}});
    if (!o.json)
      std::cout << fmt::format("{:>7}  {}\n", t.id, Json(t.text).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (o.json) std::cout << dump(list) << '\n';
}

void inspect_image(const InspectOptions& o) {
  const PictureInfo p = inspect_picture(o.checkpoint, hub_cache(), o.image, o.max_pixels);
  if (o.json) {
    std::cout << dump({{"width", p.width},
                       {"height", p.height},
                       {"resized_width", p.resized_width},
                       {"resized_height", p.resized_height},
                       {"grid_thw", {p.grid_t, p.grid_h, p.grid_w}},
                       {"patches", p.patches},
                       {"tokens", p.tokens}})
              << '\n';
    return;
  }
  std::cout << fmt::format("{}x{} pixels, read at {}x{}\n", p.width, p.height, p.resized_width, p.resized_height);
  std::cout << fmt::format("grid {} x {} x {}, {} patches, {} tokens\n", p.grid_t, p.grid_h, p.grid_w, p.patches,
                           p.tokens);
}

void inspect(const InspectOptions& o) {
  if (o.has_text) return inspect_text(o);
  if (!o.image.empty()) return inspect_image(o);
  const CheckpointInfo info = inspect_checkpoint(o.checkpoint, hub_cache());
  if (o.json) {
    std::cout << dump(checkpoint_json(info, o.tensors)) << '\n';
    return;
  }
  print_checkpoint(info);
  for (size_t i = 0; o.tensors && i < info.tensors.size(); ++i) {
    const TensorInfo& t = info.tensors[i];
    std::cout << fmt::format("{:<5} {:<22} {}  {}\n", t.dtype, shape_of(t), t.shown_name, t.shown_file);
  }
}

int show_doctor(bool json) {
  using Level = Finding::Level;
  bool problem = false;
  Json list = Json::array();
  for (const Finding& f : doctor()) {
    const char* level = f.level == Level::kOk ? "ok" : f.level == Level::kNote ? "note" : "problem";
    problem |= f.level == Level::kProblem;
    list.push_back({{"level", level}, {"subject", f.subject}, {"text", f.text}});
    if (!json) std::cout << fmt::format("{:<8} {:<11} {}\n", level, f.subject, f.text);
  }
  if (json) std::cout << dump(list) << '\n';
  return problem ? kFailed : kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand("inspect", "what a checkpoint holds: sizes, tensors, memory, template");
  c->add_option("checkpoint,-m,--checkpoint,--model", o->checkpoint,
                "folder, or ORG/NAME in the local Hugging Face cache")
      ->type_name("DIR|ORG/NAME")
      ->required();
  CLI::Option* text = c->add_option("--tokenize", o->text, "show the tokens of this text instead");
  text->each([o](const std::string&) { o->has_text = true; });
  c->add_option("--image", o->image, "show the grid and the tokens of this picture instead")
      ->type_name("FILE")
      ->excludes(text);
  c->add_option("--max-pixels", o->max_pixels, "pixel budget for --image: none or a number")->capture_default_str();
  c->add_flag("--tensors", o->tensors, "list every tensor");
  c->add_flag("--json", o->json, "for machines");
  c->callback([o, &action] {
    action = [o] {
      inspect(*o);
      flush_stdout();
      return kDone;
    };
  });
}

void add_doctor(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("doctor", "what this build has and this machine can do");
  c->add_flag("--json", *json, "for machines");
  c->callback([json, &action] {
    action = [json] {
      const int code = show_doctor(*json);
      flush_stdout();
      return code;
    };
  });
}

}  // namespace vireo::app
