// SPDX-License-Identifier: Apache-2.0
#include "golden_cases.h"
#include "base/cosine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace vireo::parity {
namespace {

// A different greedy token is acceptable only where the two best logits are within four bf16 steps of the best one.
bool near_tie(float margin, float best) {
  const float step = std::exp2(std::floor(std::log2(std::fabs(best))) - 7);
  return margin < 4 * step;
}

void expect_same_prompt_direction(const std::vector<float>& logits, const std::vector<float>& expected, size_t vocab) {
  ASSERT_EQ(logits.size(), expected.size());
  double sum = 0, least = 1;
  const size_t rows = logits.size() / vocab;
  for (size_t r = 0; r < rows; ++r) {
    const double c = cosine({&logits[r * vocab], vocab}, {&expected[r * vocab], vocab});
    sum += c;
    least = std::min(least, c);
  }
  EXPECT_GT(sum / static_cast<double>(rows), 0.9999);
  EXPECT_GT(least, 0.997);
}

}  // namespace

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.set << ' ' << c.name;
}

std::vector<Case> cases(std::initializer_list<std::string> sets) {
  std::vector<Case> out;
  for (const std::string& set : sets) {
    for (const Json& c : read_index(set)) out.push_back({set, c["name"]});
  }
  return out;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.set + "_" + info.param.name;
}

int32_t argmax(const float* row, size_t n) {
  return static_cast<int32_t>(std::max_element(row, row + n) - row);
}

void expect_same_direction(Rig& rig, const Golden& golden, const std::string& label) {
  const size_t vocab = static_cast<size_t>(rig.config().text.vocab_size);
  const Rig::Prompt prompt = rig.prepare(golden, nullptr);
  const int64_t n = static_cast<int64_t>(prompt.ids.size());
  rig.extend(prompt, 0, n, true);
  const std::vector<float> logits = rig.read(rig.runner().logits());
  if (golden.has("ref.logits")) expect_same_prompt_direction(logits, golden.floats("ref.logits"), vocab);

  const auto expected = golden.floats("ref.decode_logits");
  const auto margin = golden.floats("ref.margin");
  const auto generated = golden.ints("ref.generated");
  std::vector<float> row(logits.end() - static_cast<int64_t>(vocab), logits.end());
  // Rounding of its input may turn a router's choice between two nearly equal experts; the rows after it then differ more.
  const bool routed = rig.config().text.num_experts > 0;
  double sum = 0;
  for (size_t step = 0; step < generated.size(); ++step) {
    const float* reference = &expected[step * vocab];
    const double c = cosine({row.data(), vocab}, {reference, vocab});
    sum += c;
    EXPECT_GT(c, routed ? 0.99 : 0.9995) << "decode row " << step;
    const int32_t token = argmax(row.data(), vocab);
    if (token != generated[step]) {
      EXPECT_TRUE(near_tie(margin[step], *std::max_element(reference, reference + vocab)))
          << "step " << step << ": token " << token << " instead of " << generated[step];
      std::printf("near tie: %s step %zu, margin %.4f: %d instead of %d\n", label.c_str(), step, margin[step], token,
                  static_cast<int>(generated[step]));
    }
    rig.decode(prompt, static_cast<int32_t>(generated[step]), n + static_cast<int64_t>(step));
    row = rig.read(rig.runner().logits());
  }
  EXPECT_GT(sum / static_cast<double>(generated.size()), routed ? 0.999 : 0.9995);
}

}  // namespace vireo::parity
