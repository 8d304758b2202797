// Quantised folders: their bytes are those that quantising at load makes, what is loaded from them computes the same, and what was changed
// in them is refused.
// SPDX-License-Identifier: Apache-2.0
#include "engine/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/cosine.h"
#include "engine/model.h"
#include "engine/output_folder.h"
#include "engine/test_experts.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/test_files.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;
using std::string;

const string kTiny = VIREO_SOURCE_DIR "/models/tiny";
const string kLayer0 = "model.language_model.layers.0.";

Quantize options_for(const fs::path& folder, const string& tier) {
  return {.checkpoint = kTiny, .weight_mode = tier, .folder = folder, .threads = 2};
}

std::set<string> names_in(const fs::path& folder) {
  std::set<string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// The rows of one matrix, quantised one by one, against its codes.
void expect_coded(const bf16* rows, const CodedMatrix& matrix, const ProjectionPart& part) {
  const int64_t code_cols = code_bytes(part.tier, part.in), scale_cols = tier_groups(part.in);
  const float tensor_scale = tensor_scale_of(part.tier, rows, part.out * part.in);
  ASSERT_EQ(matrix.tensor_scale, tensor_scale) << part.tensor_scale;
  std::vector<bf16> scales(static_cast<size_t>(scale_cols));
  std::vector<uint8_t> want(static_cast<size_t>(code_cols));
  std::vector<bf16> want_scales(static_cast<size_t>(scale_cols));
  for (int64_t o = 0; o < part.out; ++o) {
    quantize_row(part.tier, rows + o * part.in, part.in, want.data(), want_scales.data(), tensor_scale);
    matrix.read_scales(o, scale_cols, scales.data());
    ASSERT_EQ(std::memcmp(matrix.codes + o * code_cols, want.data(), want.size()), 0) << part.codes << " row " << o;
    ASSERT_EQ(std::memcmp(scales.data(), want_scales.data(), want_scales.size() * sizeof(bf16)), 0)
        << part.scales << " row " << o;
  }
}

// A part's rows of the source, where experts are [E, out, in], against what the folder has.
void expect_coded(const Checkpoint& source, const Checkpoint& made, const ProjectionPart& part) {
  const std::vector<int64_t> shape =
      part.experts > 0 ? std::vector{part.experts, part.out, part.in} : std::vector{part.out, part.in};
  const auto* rows = static_cast<const bf16*>(source.get(part.rows, shape).data);
  const HostTensor& codes = made.get_coded(part.codes, part.codes_shape(), codes_type(part.tier));
  const HostTensor& scales = made.get_coded(part.scales, part.scales_shape(), scales_type(part.tier));
  const CodedMatrix all = {part.tier, static_cast<const uint8_t*>(codes.data), scales.data};
  for (int64_t i = 0; i < part.matrices(); ++i) {
    CodedMatrix matrix = all.from_row(i * part.out, part.in);
    if (part.tier == Tier::kNvfp4) {
      const HostTensor& stored = made.get_coded(part.tensor_scale, part.tensor_scale_shape(), DType::kF32);
      matrix.tensor_scale = static_cast<const float*>(stored.data)[i];
    }
    expect_coded(rows + i * part.out * part.in, matrix, part);
  }
}

// Everything that a checkpoint has in the folder and in the source is the same.
void expect_same_others(const Checkpoint& source, const Checkpoint& made, const std::set<string>& coded) {
  for (const HostTensor& t : made.tensors()) {
    if (coded.count(t.name) != 0) continue;
    const HostTensor& same = source.get(t.name, t.shape);
    EXPECT_EQ(std::memcmp(same.data, t.data, t.bytes()), 0) << t.name;
  }
}

// The codes and scales of the folder are those of the rows of `source`; returns their names.
std::set<string> expect_codes(const Checkpoint& source, const Checkpoint& made, const ModelConfig& config) {
  std::set<string> coded;
  for (const Projection& p : projections(config.text)) {
    for (const ProjectionPart& part : parts_of(p, config)) {
      if (part.tier == Tier::kBf16) continue;
      expect_coded(source, made, part);
      coded.insert({part.codes, part.scales});
      if (part.tier == Tier::kNvfp4) coded.insert(part.tensor_scale);
    }
  }
  EXPECT_GT(coded.size(), 0u);
  return coded;
}

void expect_quantised(const string& source_folder, const fs::path& folder) {
  const Checkpoint source = Checkpoint::open(source_folder), made = Checkpoint::open(folder);
  const ModelConfig config = load_model_config(folder);
  const std::set<string> coded = expect_codes(source, made, config);
  size_t left_out = 0;
  for (const Projection& p : projections(config.text)) {
    for (const ProjectionPart& part : parts_of(p, config)) left_out += part.has_rows ? 0 : 1;
  }
  EXPECT_EQ(made.tensors().size(), source.tensors().size() + coded.size() - left_out);
  expect_same_others(source, made, coded);
}

TEST(Quantize, CodesAreThoseOfTheRows) {
  const TempFolder folder;
  for (const string tier : {"w8", "w4", "int8", "int4", "nvfp4"}) {
    for (const bool keep : {false, true}) {
      Quantize o = options_for(folder.path() / (tier + (keep ? "-kept" : "")), tier);
      o.keep_bf16 = keep;
      o.threads = keep ? 1 : 3;
      const QuantizeReport report = quantize_checkpoint(o);
      expect_quantised(kTiny, o.folder);
      EXPECT_EQ(report.bytes, Checkpoint::open(o.folder).tensor_bytes());
      EXPECT_EQ(report.source_bytes, 17704704u);
      EXPECT_EQ(report.bytes < report.source_bytes, !keep);
    }
  }
}

TEST(Quantize, AwkwardShapesAndExperts) {
  const TempFolder folder;
  for (const string set : {"random_dense", "random_moe"}) {
    const string source = string(VIREO_TEST_DATA "/goldens/") + set + "/checkpoint";
    Quantize o = options_for(folder.path() / set, "int4");
    o.checkpoint = source;
    o.wq_overrides = {{"L0.o_proj", "w8"}};
    quantize_checkpoint(o);
    expect_quantised(source, o.folder);
    EXPECT_EQ(load_model_config(o.folder).quantization->tiers.at("gate_up"), Tier::kInt4);
  }
}

// By name of the tensors with experts' codes, their shapes.
std::map<string, std::vector<int64_t>> stored_experts(const Checkpoint& made) {
  std::map<string, std::vector<int64_t>> shapes;
  for (const HostTensor& t : made.tensors()) {
    if (contains(t.name, "layers.0.mlp.experts.")) shapes[t.name.substr(t.name.find("experts."))] = t.shape;
  }
  return shapes;
}

TEST(Quantize, ExpertsOfEveryLayoutAreStoredTheSame) {
  const TempFolder folder;
  const Checkpoint original = Checkpoint::open(kExperts);
  for (const Stored stored : kAllStored) {
    const string source = (folder.path() / ("source" + std::to_string(static_cast<int>(stored)))).string();
    StoredExperts(source, stored);
    const Checkpoint other = Checkpoint::open(source);
    for (const string tier : {"w8", "int4", "nvfp4"}) {
      for (const bool keep : {false, true}) {
        Quantize o = options_for(folder.path() / "model", tier);
        o.checkpoint = source;
        o.keep_bf16 = keep;
        const QuantizeReport report = quantize_checkpoint(o);
        const Checkpoint made = Checkpoint::open(o.folder);
        EXPECT_EQ(report.bytes, made.tensor_bytes());
        const std::set<string> coded = expect_codes(original, made, load_model_config(o.folder));
        expect_same_others(other, made, coded);
        EXPECT_TRUE(!keep || made.tensors().size() == other.tensors().size() + coded.size());
        const std::vector<int64_t> codes = {8, 96, tier == "w8" ? 128 : 64};
        const auto shapes = stored_experts(made);
        EXPECT_EQ(shapes.at(keep ? "experts.gate_up_proj_codes" : "experts.gate_up_proj"), codes);
        EXPECT_EQ(shapes.at("experts.down_proj_scale"), (std::vector<int64_t>{8, 128, 3}));
        EXPECT_TRUE(keep || shapes.size() == (tier == "nvfp4" ? 6u : 4u));
        fs::remove_all(o.folder);
      }
    }
  }
}

TEST(Quantize, WritesTheFilesOfTheSourceAndSaysWhatIsInThem) {
  const TempFolder folder;
  Quantize o = options_for(folder.path() / "model", "w8");
  o.wq_overrides = {{"lm_head", "bf16"}, {"L2.gate_up", "int4"}};
  uint64_t last = 0;
  const QuantizeReport report = quantize_checkpoint(o, [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
  });
  EXPECT_EQ(last, report.bytes);
  std::set<string> names = names_in(kTiny);
  names.erase("README.md");
  names.erase("scores.json");
  EXPECT_EQ(names_in(o.folder), names);
  EXPECT_EQ(names_in(folder.path()), std::set<string>({"model"}));
  const Json config = read_json(o.folder / "config.json");
  EXPECT_EQ(
      config["quantization_config"].dump(),
      R"({"quant_method":"vireo","format_version":1,"group_size":16,"keep_bf16":false,"tiers":{"L2.gate_up":"int4",)"
      R"("gate_up":"w8","lm_head":"bf16","mlp_down":"w8","o_proj":"w8","qkv_proj":"w8"}})");
  Json without = config;
  without.erase("quantization_config");
  EXPECT_EQ(without, read_json(kTiny + "/config.json"));

  const CheckpointInfo info = inspect_checkpoint(o.folder.string(), {}), source = inspect_checkpoint(kTiny, {});
  EXPECT_EQ(info.text_parameters, source.text_parameters);
  EXPECT_EQ(info.weight_bytes, source.weight_bytes);
  EXPECT_FALSE(info.keeps_bf16);
  EXPECT_TRUE(source.tiers.empty());
  std::vector<string> tiers;
  for (const StoredTier& t : info.tiers) {
    tiers.push_back(t.projection + " " + t.tier + " " + std::to_string(t.matrices) + " " + std::to_string(t.bytes));
  }
  EXPECT_EQ(tiers, (std::vector<string>{"qkv_proj w8 18 1769472", "o_proj w8 6 884736", "gate_up w8 10 1843200",
                                        "gate_up int4 2 204800", "mlp_down w8 6 1105920", "lm_head bf16 1 557056"}));
}

// The logits of a prompt and of three steps after it.
std::vector<std::vector<float>> logits(Options options) {
  if (options.device == "auto") options.device = "cpu";
  const auto engine = Engine::load(options);
  engine->set_prompt_text("What is 15 + 36?");
  std::vector<std::vector<float>> all = {engine->prefill()};
  for (const int32_t token : {17, 5, 230}) all.push_back(engine->decode_step(token));
  return all;
}

Request scene() {
  Request request{.max_new_tokens = 32};
  request.messages.push_back(
      {.role = "user",
       .content = {{.kind = Part::Kind::kImage, .image = {.path = VIREO_SOURCE_DIR "/tests/data/scenes/s000.png"}},
                   {.text = "Describe this image."}}});
  return request;
}

TEST(Quantize, WithBf16ItComputesWhatTheSourceDoes) {
  const TempFolder folder;
  for (const string tier : {"w8", "w4", "int8", "int4", "nvfp4"}) {
    Quantize o = options_for(folder.path() / tier, tier);
    o.keep_bf16 = true;
    o.wq_overrides = {{"L1.mlp_down", "bf16"}};
    quantize_checkpoint(o);
    for (const string device : {"cpu", "reference"}) {
      if (device == "reference" && tier != "w4") continue;  // it is slow
      const auto want = logits(
          {.checkpoint = kTiny, .device = device, .weight_mode = tier, .wq_overrides = {{"L1.mlp_down", "bf16"}}});
      EXPECT_EQ(logits({.checkpoint = o.folder.string(), .device = device}), want) << tier << device;
    }
    // And any other tier, as the source does.
    const string other = tier == "int8" ? "w4" : "int8";
    EXPECT_EQ(logits({.checkpoint = o.folder.string(), .weight_mode = other}),
              logits({.checkpoint = kTiny, .weight_mode = other}));
    EXPECT_EQ(logits({.checkpoint = o.folder.string(), .weight_mode = "bf16"}), logits({.checkpoint = kTiny}));
  }
}

TEST(Quantize, ExpertsComputeWhatQuantisingAtLoadDoes) {
  const TempFolder folder;
  const std::map<string, string> overrides = {{"L1.gate_up", "bf16"}, {"L2.mlp_down", "bf16"}};
  for (const Stored stored : kAllStored) {
    const string source = (folder.path() / ("source" + std::to_string(static_cast<int>(stored)))).string();
    StoredExperts(source, stored);
    for (const string tier : {"int8", "w4", "nvfp4"}) {
      const auto want = logits({.checkpoint = source, .weight_mode = tier, .wq_overrides = overrides});
      Quantize o = options_for(folder.path() / "model", tier);
      o.checkpoint = source;
      o.wq_overrides = overrides;
      o.keep_bf16 = true;
      quantize_checkpoint(o);
      EXPECT_EQ(logits({.checkpoint = o.folder.string()}), want) << tier;
      EXPECT_EQ(logits({.checkpoint = o.folder.string(), .weight_mode = "bf16"}), logits({.checkpoint = source}));
      EXPECT_EQ(logits({.checkpoint = o.folder.string(), .weight_mode = "w8"}),
                logits({.checkpoint = source, .weight_mode = "w8"}));
      fs::remove_all(o.folder);
      o.keep_bf16 = false;
      quantize_checkpoint(o);
      const auto engine = Engine::load({.checkpoint = o.folder.string(), .device = "cpu"});
      EXPECT_EQ(engine->info().weight_bytes,
                Engine::load({.checkpoint = source, .device = "cpu", .weight_mode = tier, .wq_overrides = overrides})
                    ->info()
                    .weight_bytes);
      EXPECT_ERROR(engine->set_wq_overrides({{"gate_up", "w8"}}), "kUsage", "L0.gate_up is asked for as w8");
      engine->set_wq_overrides({{"L1.gate_up", "w8"}});
      // Prefill reads what the codes stand for, by whichever backend.
      const auto alone = logits({.checkpoint = o.folder.string()}),
                 reference = logits({.checkpoint = o.folder.string(), .device = "reference"});
      for (size_t step = 0; step < alone.size(); ++step) {
        EXPECT_GT(cosine(alone[step], reference[step]), 0.999) << tier << " " << step;
        EXPECT_GT(cosine(alone[step], want[step]), 0.9) << tier << " " << step;
      }
      const CheckpointInfo info = inspect_checkpoint(o.folder.string(), {}), plain = inspect_checkpoint(source, {});
      EXPECT_EQ(info.text_parameters, plain.text_parameters);
      EXPECT_EQ(info.weight_bytes, plain.weight_bytes);
      fs::remove_all(o.folder);
    }
  }
}

// The codes and scales stand for the rows beside them, but for a small error.
void expect_near(const Checkpoint& made, const ModelConfig& config) {
  for (const Projection& p : projections(config.text)) {
    for (const ProjectionPart& part : parts_of(p, config)) {
      if (part.experts > 0) continue;
      const auto* rows = static_cast<const bf16*>(made.get(part.rows, {part.out, part.in}).data);
      const int64_t code_cols = code_bytes(part.tier, part.in), scale_cols = tier_groups(part.in);
      const auto* codes = static_cast<const uint8_t*>(made.find(part.codes)->data);
      const auto* scales = static_cast<const bf16*>(made.find(part.scales)->data);
      std::vector<float> row(static_cast<size_t>(part.in));
      double error = 0, all = 0;
      for (int64_t o = 0; o < part.out; ++o) {
        dequantize_row(part.tier, codes + o * code_cols, scales + o * scale_cols, part.in, row.data());
        for (int64_t c = 0; c < part.in; ++c) {
          const double w = to_float(rows[o * part.in + c]), d = row[static_cast<size_t>(c)] - w;
          error += d * d;
          all += w * w;
        }
      }
      EXPECT_LT(error, 0.1 * all) << part.rows;
    }
  }
}

Quantize folding_for(const string& source, const fs::path& folder, const string& tier) {
  Quantize o = options_for(folder, tier);
  o.checkpoint = source;
  o.keep_bf16 = true;
  o.calibration = Calibration{"some.jsonl", {scene()}};
  return o;
}

class Folded : public testing::TestWithParam<string> {};

TEST_P(Folded, InBf16ItComputesWhatTheSourceDoes) {
  const TempFolder folder;
  const string source = GetParam() == "tiny" ? kTiny : VIREO_TEST_DATA "/goldens/" + GetParam() + "/checkpoint";
  const Quantize o = folding_for(source, folder.path() / "model", "w4");
  quantize_checkpoint(o);
  for (const string device : {"cpu", "reference"}) {
    const auto want = logits({.checkpoint = source, .device = device});
    EXPECT_EQ(logits({.checkpoint = o.folder.string(), .device = device, .weight_mode = "bf16"}), want) << device;
    EXPECT_NE(logits({.checkpoint = o.folder.string(), .device = device}), want) << device;
  }
  const Checkpoint made = Checkpoint::open(o.folder), original = Checkpoint::open(source);
  expect_near(made, load_model_config(o.folder));
  EXPECT_TRUE(std::ranges::any_of(original.tensors(), [&](const HostTensor& t) {
    return std::memcmp(made.get(t.name, t.shape).data, t.data, t.bytes()) != 0;
  })) << "nothing was folded";
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Folded, testing::Values("tiny", "random_dense", "random_moe"),
                         [](const auto& info) { return info.param; });

TEST(Quantize, ExpertsAndTheirNormAreNotFolded) {
  const TempFolder folder;
  const string source = VIREO_TEST_DATA "/goldens/random_moe/checkpoint";
  const Quantize o = folding_for(source, folder.path() / "model", "int4");
  const QuantizeReport report = quantize_checkpoint(o);
  const Checkpoint made = Checkpoint::open(o.folder), original = Checkpoint::open(source);
  for (const HostTensor& t : original.tensors()) {
    if (!contains(t.name, ".mlp.") && !contains(t.name, "post_attention_layernorm")) continue;
    EXPECT_EQ(std::memcmp(made.get(t.name, t.shape).data, t.data, t.bytes()), 0) << t.name;
  }
  // Their codes are those without --calibrate.
  const ModelConfig config = load_model_config(o.folder);
  for (const Projection& p : projections(config.text)) {
    if (p.experts > 0) expect_coded(original, made, parts_of(p, config)[0]);
  }
  for (const CalibratedProjection& p : report.calibrated)
    EXPECT_PRED2(contains, p.projection + " qkv_proj o_proj lm_head", p.projection);
}

TEST(Quantize, FoldsWhatIsInFourBitsAndSaysSo) {
  const TempFolder folder;
  Quantize o = folding_for(kTiny, folder.path() / "model", "bf16");
  o.keep_bf16 = false;
  o.wq_overrides = {{"L1.mlp_down", "w4"}, {"L4.o_proj", "int4"}};
  int calibrated = 0, searched = 0;
  const QuantizeReport report = quantize_checkpoint(o, {}, [&](const string& stage, int64_t done, int64_t total) {
    EXPECT_LT(done, total);
    ++(stage == "calibration" ? calibrated : searched);
  });
  EXPECT_EQ(calibrated, 1);
  EXPECT_EQ(searched, 1);
  ASSERT_EQ(report.calibrated.size(), 2u);
  EXPECT_EQ(report.calibrated[0].projection, "L1.mlp_down");
  EXPECT_EQ(report.calibrated[1].projection, "L4.o_proj");
  for (const CalibratedProjection& p : report.calibrated) {
    EXPECT_LT(p.error, p.plain_error) << p.projection;
    EXPECT_GT(p.error, 0) << p.projection;
  }
  const Json config = read_json(o.folder / "config.json"), told = config["quantization_config"]["folded"];
  EXPECT_EQ(told["calibration"], "some.jsonl");
  EXPECT_EQ(told["conversations"], 1);
  EXPECT_EQ(told["alpha"]["L4.o_proj"], report.calibrated[1].alpha);
  EXPECT_EQ(told["alpha"].size(), 2u);
  const CheckpointInfo info = inspect_checkpoint(o.folder.string(), {});
  EXPECT_EQ(info.folded_by, "some.jsonl");
  EXPECT_EQ(info.folded_conversations, 1);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  // Nothing but what makes their inputs has changed, where a factor helps.
  std::set<string> changed;
  const Checkpoint made = Checkpoint::open(o.folder), source = Checkpoint::open(kTiny);
  for (const HostTensor& t : made.tensors()) {
    const HostTensor* same = t.dtype == DType::kBF16 ? source.find(t.name) : nullptr;
    if (same && std::memcmp(same->data, t.data, t.bytes()) != 0) changed.insert(t.name);
  }
  changed.erase("model.language_model.layers.4.self_attn.v_proj.weight");
  EXPECT_EQ(changed, std::set<string>{"model.language_model.layers.1.mlp.up_proj.weight"});
}

TEST(Quantize, TiersOfEightBitsAndNvfp4AreCalibratedWithoutFactors) {
  const TempFolder folder;
  for (const string tier : {"w8", "int8", "nvfp4"}) {
    const Quantize o = folding_for(kTiny, folder.path() / tier, tier);
    const QuantizeReport report = quantize_checkpoint(o);
    EXPECT_EQ(report.calibrated.size(), 25u);
    for (const CalibratedProjection& p : report.calibrated) {
      EXPECT_EQ(p.alpha, 0) << p.projection;
      EXPECT_LT(p.error, p.plain_error) << tier << p.projection;
      EXPECT_GT(p.error, 0) << tier << p.projection;
    }
    EXPECT_EQ(read_json(o.folder / "config.json")["tie_word_embeddings"], true);
    const Checkpoint made = Checkpoint::open(o.folder), source = Checkpoint::open(kTiny);
    for (const HostTensor& t : source.tensors())
      EXPECT_EQ(std::memcmp(made.get(t.name, t.shape).data, t.data, t.bytes()), 0) << t.name;
    EXPECT_EQ(logits({.checkpoint = o.folder.string(), .weight_mode = "bf16"}), logits({.checkpoint = kTiny}));
    const auto calibrated = logits({.checkpoint = o.folder.string()}),
               plain = logits({.checkpoint = kTiny, .weight_mode = tier});
    EXPECT_EQ(calibrated[0], plain[0]) << tier;
    EXPECT_NE(calibrated[1], plain[1]) << tier;
  }
}

TEST(Quantize, CalibratingDependsOnNoThreads) {
  const TempFolder folder;
  std::vector<Checkpoint> made;
  for (const int threads : {1, 3}) {
    Quantize o = folding_for(kTiny, folder.path() / std::to_string(threads), "int4");
    o.threads = threads;
    quantize_checkpoint(o);
    made.push_back(Checkpoint::open(o.folder));
  }
  for (const HostTensor& t : made[0].tensors())
    EXPECT_EQ(std::memcmp(made[1].find(t.name)->data, t.data, t.bytes()), 0) << t.name;
}

// The scales of v_proj in nvfp4 whose rows are divided by the factors of o_proj are those of the divided rows.
TEST(Quantize, FactorsOfAnotherTiersMakerAreInItsCodes) {
  const TempFolder folder;
  Quantize o = folding_for(kTiny, folder.path() / "model", "int4");
  o.wq_overrides = {{"qkv_proj", "nvfp4"}, {"lm_head", "bf16"}};
  quantize_checkpoint(o);
  const auto of_folder = logits({.checkpoint = o.folder.string()}), want = logits({.checkpoint = kTiny});
  for (size_t step = 1; step < want.size(); ++step) EXPECT_GT(cosine(of_folder[step], want[step]), 0.9) << step;
}

TEST(Quantize, ATiedHeadThatIsFoldedIsTiedNoMore) {
  const TempFolder folder;
  for (const bool keep : {false, true}) {
    Quantize o = folding_for(kTiny, folder.path() / (keep ? "kept" : "codes"), "bf16");
    o.keep_bf16 = keep;
    o.wq_overrides = {{"lm_head", "int4"}};
    const QuantizeReport report = quantize_checkpoint(o);
    EXPECT_EQ(report.bytes, Checkpoint::open(o.folder).tensor_bytes());
    EXPECT_EQ(read_json(o.folder / "config.json")["tie_word_embeddings"], false);
    EXPECT_EQ(Checkpoint::open(o.folder).find("lm_head.weight")->dtype, keep ? DType::kBF16 : DType::kU8);
    const auto engine = Engine::load({.checkpoint = o.folder.string(), .device = "cpu"});
    EXPECT_EQ(engine->generate(scene()).text, "A black cross on a green background.");
  }
}

TEST(Quantize, RefusesCalibrations) {
  const TempFolder folder;
  const auto with = [&](const auto& change) {
    Quantize o = folding_for(kTiny, folder.path() / "model", "w4");
    change(o);
    return error_of([&] { quantize_checkpoint(o); });
  };
  const auto expect = [](const string& error, std::initializer_list<string> parts) {
    for (const string& part : parts) EXPECT_PRED2(contains, error, part);
  };
  expect(with([](Quantize& o) {
           o.checkpoint = kExperts;
           o.weight_mode = "bf16";
           o.wq_overrides = {{"gate_up", "w4"}};
         }),
         {"kUsage", "--calibrate changes nothing of experts", "qkv_proj=w4"});
  expect(with([](Quantize& o) { o.calibration->requests.clear(); }), {"kUsage", "some.jsonl has no conversation"});
  expect(with([](Quantize& o) { o.calibration->requests.push_back({}); }), {"conversation 2 of some.jsonl: "});
  expect(with([](Quantize& o) { o.calibration->requests[0].messages[0].content[0].image.path = "/no/such.png"; }),
         {"conversation 1 of some.jsonl: ", "/no/such.png"});
  EXPECT_EQ(names_in(folder.path()), std::set<string>());
}

TEST(Quantize, WithoutBf16PrefillIsThatOfTheTier) {
  const TempFolder folder;
  for (const string tier : {"w8", "w4", "int8", "int4", "nvfp4"}) {
    const Quantize o = options_for(folder.path() / tier, tier);
    quantize_checkpoint(o);
    const Options options{.checkpoint = o.folder.string(), .device = "cpu"};
    EXPECT_NE(logits(options)[0], logits({.checkpoint = kTiny})[0]) << tier;
    const auto engine = Engine::load(options);
    EXPECT_EQ(engine->generate(scene()).text, "A black cross on a green background.") << tier;
    const ModelInfo& plan = engine->info();
    EXPECT_EQ(plan.weight_bytes,
              Engine::load({.checkpoint = kTiny, .device = "cpu", .weight_mode = tier})->info().weight_bytes);
  }
}

TEST(Quantize, OnlyTheStoredTierCanBeAskedFor) {
  const TempFolder folder;
  Quantize o = options_for(folder.path() / "model", "w8");
  o.wq_overrides = {{"o_proj", "bf16"}};
  quantize_checkpoint(o);
  const Options stored{.checkpoint = o.folder.string(), .device = "cpu"};
  const auto load = [&](const string& mode, const std::map<string, string>& overrides) {
    Options options = stored;
    options.weight_mode = mode;
    options.wq_overrides = overrides;
    return Engine::load(options);
  };
  EXPECT_ERROR(load("w4", {}), "kUsage", "L0.qkv_proj is asked for as w4", "has it as w8 alone", "--keep-bf16");
  EXPECT_ERROR(load("bf16", {}), "kUsage", "as bf16", "as w8 alone");
  EXPECT_ERROR(load("auto", {{"L3.gate_up", "int8"}}), "kUsage", "L3.gate_up is asked for as int8", "as w8 alone");
  EXPECT_ERROR(load("auto", {{"L9.gate_up", "w8"}}), "kUsage", "this model has 6 layers");
  // What it has in BF16 can have any: o_proj, and the head that is the embedding.
  const auto engine = load("w8", {{"o_proj", "int4"}, {"lm_head", "w4"}});
  EXPECT_EQ(engine->generate(scene()).text, "A black cross on a green background.");
  EXPECT_ERROR(engine->set_wq_overrides({{"mlp_down", "w4"}}), "kUsage", "L0.mlp_down is asked for as w4");
  engine->set_wq_overrides({{"o_proj", "w8"}});
  EXPECT_EQ(engine->generate(scene()).text, "A black cross on a green background.");
}

TEST(Quantize, RefusesOptionsAndSources) {
  const TempFolder folder;
  const auto with = [&](const auto& change) {
    Quantize o = options_for(folder.path() / "model", "w8");
    change(o);
    return error_of([&] { quantize_checkpoint(o); });
  };
  const auto expect = [](const string& error, std::initializer_list<string> parts) {
    for (const string& part : parts) EXPECT_PRED2(contains, error, part);
  };
  expect(with([](Quantize& o) { o.weight_mode = "bf16"; }), {"kUsage", "nothing would be quantised", "lm_head=w8"});
  expect(with([](Quantize& o) { o.weight_mode = "auto"; }), {"kUsage", "nothing would be quantised"});
  expect(with([](Quantize& o) { o.weight_mode = "fp4"; }), {"kUsage", "fp4 is unknown", "nvfp4"});
  expect(with([](Quantize& o) { o.wq_overrides = {{"nose", "w8"}}; }), {"kUsage", "'nose' is not a projection"});
  expect(with([](Quantize& o) { o.wq_overrides = {{"L6.o_proj", "w8"}}; }), {"kUsage", "this model has 6 layers"});
  expect(with([](Quantize& o) { o.folder = ""; }), {"kUsage", "--out is empty"});
  expect(with([](Quantize& o) { o.threads = -1; }), {"kUsage", "--threads -1"});
  expect(with([](Quantize& o) { o.checkpoint = "/no/such/folder"; }), {"kNotFound", "/no/such/folder"});
  expect(with([](Quantize& o) { o.folder = "/proc/vireo/model"; }), {"/proc"});
  folder.write("used/notes.txt", "mine");
  expect(with([&](Quantize& o) { o.folder = folder.path() / "used"; }), {"kUsage", "used holds files", "--out"});
  folder.write("a.partial/notes.txt", "mine");
  expect(with([&](Quantize& o) { o.folder = folder.path() / "a"; }), {"kUsage", "a.partial holds files"});
  EXPECT_EQ(names_in(folder.path()), (std::set<string>{"used", "a.partial"}));
  quantize_checkpoint(options_for(folder.path() / "model", "w8"));
  expect(with([&](Quantize& o) { o.checkpoint = (folder.path() / "model").string(), o.folder = folder.path() / "b"; }),
         {"kUsage", "model is quantised already", "BF16 checkpoint"});
  EXPECT_ERROR(check_space(folder.path(), uint64_t{1} << 60), "kCapacity", "needs 1152921504.61 GB", "GB free");
}

TEST(Quantize, APartIsNotACheckpoint) {
  const TempFolder folder;
  const Quantize o = options_for(folder.path() / "model", "w8");
  const auto stop = [&](uint64_t, uint64_t) {
    EXPECT_FALSE(fs::exists(o.folder));
    throw Error(ErrorKind::kCancelled, "stopped");
  };
  EXPECT_ERROR(quantize_checkpoint(o, stop), "kCancelled: stopped");
  EXPECT_EQ(names_in(folder.path()), std::set<string>());
  folder.write("model.partial/.vireo-quantize", "");  // of a run that was killed
  folder.write("model.partial/model.safetensors", "xx");
  quantize_checkpoint(o);
  EXPECT_EQ(names_in(folder.path()), std::set<string>({"model"}));
  expect_quantised(kTiny, o.folder);
}

// A quantised models/tiny, one of whose files is changed.
class QuantizedFolder : public testing::Test {
 protected:
  explicit QuantizedFolder(const string& source = kTiny, const string& tier = "w8") {
    Quantize o = options_for(path(), tier);
    o.checkpoint = source;
    quantize_checkpoint(o);
    Checkpoint::open(path());
  }

  fs::path path() const { return folder_.path() / "model"; }

  // In every file; what replaces a text is as long.
  void replace(const string& from, const string& to) const {
    ASSERT_EQ(from.size(), to.size());
    int places = 0;
    for (const string& name : names_in(path())) {
      string bytes = read_file(path() / name, 64 << 20);
      for (size_t at = bytes.find(from); at != string::npos; at = bytes.find(from, at + 1), ++places)
        bytes.replace(at, from.size(), to);
      folder_.write("model/" + name, bytes);
    }
    EXPECT_GT(places, 0) << from;
  }

  void set_tier(const string& tier) const {
    Json config = read_json(path() / "config.json");
    config["quantization_config"]["tiers"]["mlp_down"] = tier;
    folder_.write("model/config.json", config.dump());
  }

  string refusal() const {
    const string error = error_of([&] { Engine::load({.checkpoint = path().string(), .device = "cpu"}); });
    EXPECT_EQ(error_of([&] { inspect_checkpoint(path().string(), {}); }), error);
    return error;
  }

  void expect_refused(std::initializer_list<string> parts) const {
    for (const string& part : parts) EXPECT_PRED2(contains, refusal(), part);
  }

  const TempFolder folder_;
  const string down_ = kLayer0 + "mlp.down_proj.weight";
};

TEST_F(QuantizedFolder, NoScales) {
  replace(down_ + "_scale", down_ + "_scule");
  expect_refused({"kNotFound", "has no tensor '" + down_ + "_scale'", "BF16 [256, 40]", "vireo quantize"});
}

TEST_F(QuantizedFolder, NoCodes) {
  replace(down_ + "\"", kLayer0 + "mlp.down_proj.weighs\"");
  expect_refused({"kNotFound", "has no tensor '" + down_ + "'", "F8_E4M3 [256, 640]"});
}

TEST_F(QuantizedFolder, WrongTypeOfScales) {
  replace(down_ + "_scale\":{\"dtype\":\"BF16\"", down_ + "_scale\":{\"dtype\":\"F16\" ");
  expect_refused({"kInput", down_ + "_scale' is F16 [256, 40]", "asks for BF16 [256, 40]", ".safetensors"});
}

TEST_F(QuantizedFolder, WrongShape) {
  replace(down_ + "\":{\"dtype\":\"F8_E4M3\",\"shape\":[256,640]",
          down_ + "\":{\"dtype\":\"F8_E4M3\",\"shape\":[640,256]");
  expect_refused({"kInput", down_ + "' is F8_E4M3 [640, 256]", "asks for F8_E4M3 [256, 640]"});
}

TEST_F(QuantizedFolder, AnotherTierInTheConfig) {
  set_tier("int8");
  expect_refused({"kInput", down_ + "' is F8_E4M3 [256, 640]", "asks for I8 [256, 640]"});
  set_tier("w4");
  expect_refused({"kInput", down_ + "' is F8_E4M3 [256, 640]", "asks for U8 [256, 320]"});
  set_tier("bf16");
  expect_refused({"kInput", down_, "F8_E4M3", "only BF16 is accepted"});
}

// Experts in nvfp4, whose tensors are changed as those of models/tiny.
class QuantizedExperts : public QuantizedFolder {
 protected:
  QuantizedExperts() : QuantizedFolder(kExperts, "nvfp4") {}
  const string down_ = kLayer0 + "mlp.experts.down_proj";
};

TEST_F(QuantizedExperts, NoCodesAndNoScales) {
  replace(down_ + "_scale\"", down_ + "_scule\"");
  expect_refused({"kNotFound", "has no tensor '" + down_ + "_scale'", "F8_E4M3 [8, 128, 3]", "vireo quantize"});
  replace(down_ + "\"", kLayer0 + "mlp.experts.down_prok\"");
  expect_refused({"kNotFound", "has no tensor '" + down_ + "'", "U8 [8, 128, 24]"});
}

TEST_F(QuantizedExperts, WrongShapes) {
  replace(down_ + "\":{\"dtype\":\"U8\",\"shape\":[8,128,24]", down_ + "\":{\"dtype\":\"U8\",\"shape\":[8,24,128]");
  expect_refused({"kInput", down_ + "' is U8 [8, 24, 128]", "asks for U8 [8, 128, 24]"});
}

TEST_F(QuantizedExperts, OfAnotherNumber) {
  replace(down_ + "\":{\"dtype\":\"U8\",\"shape\":[8,128,24]", down_ + "\":{\"dtype\":\"U8\",\"shape\":[4,256,24]");
  expect_refused({"kInput", down_ + "' is U8 [4, 256, 24]", "asks for U8 [8, 128, 24]"});
}

TEST_F(QuantizedExperts, WrongScalesOfTensors) {
  replace(down_ + "_scale_2\":{\"dtype\":\"F32\",\"shape\":[8]", down_ + "_scale_2\":{\"dtype\":\"I32\",\"shape\":[8]");
  expect_refused({"kInput", down_ + "_scale_2' is I32 [8]", "asks for F32 [8]"});
}

TEST_F(QuantizedExperts, AnotherTierInTheConfig) {
  set_tier("int4");
  expect_refused({"kInput", down_ + "_scale' is F8_E4M3 [8, 128, 3]", "asks for BF16 [8, 128, 3]"});
  set_tier("bf16");
  expect_refused({"kInput", down_, "[8, 128, 24]"});
}

// Whose down projections are codes alone, so that their shape does not tell.
TEST(QuantizedExpertRows, LieAsTheConfigSays) {
  const TempFolder folder;
  for (const Stored stored : kAllStored) {
    const string source = (folder.path() / ("source" + std::to_string(static_cast<int>(stored)))).string();
    StoredExperts(source, stored);
    Quantize o = options_for(folder.path() / "model", "bf16");
    o.checkpoint = source;
    o.wq_overrides = {{"mlp_down", "int8"}};
    quantize_checkpoint(o);
    const Json told = read_json(o.folder / "config.json")["quantization_config"];
    EXPECT_EQ(told.contains("experts_out_in"), stored == Stored::kOutIn);
    const auto of_source = logits({.checkpoint = source, .wq_overrides = {{"mlp_down", "int8"}}}),
               of_folder = logits({.checkpoint = o.folder.string()});
    for (size_t step = 0; step < of_source.size(); ++step)
      EXPECT_GT(cosine(of_folder[step], of_source[step]), 0.999) << step;
    fs::remove_all(o.folder);
  }
}

}  // namespace
}  // namespace vireo
