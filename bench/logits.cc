// vireo_logits CHECKPOINT PICTURE PROMPT STEPS OUT [DEVICE [CHUNK]]: the logits of the prompt's last row and of STEPS greedy decode steps, as
// float32 rows in OUT; prints the chosen ids as a JSON array. For comparing with other implementations.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "vireo/vireo.h"

int main(int argc, char** argv) try {
  if (argc < 6) {
    std::fprintf(stderr, "usage: vireo_logits CHECKPOINT PICTURE PROMPT STEPS OUT [DEVICE [CHUNK]]\n");
    return 2;
  }
  vireo::Options options;
  options.checkpoint = argv[1];
  options.max_pixels = "none";
  if (argc > 6) options.device = argv[6];
  if (argc > 7) options.prefill_chunk = std::atoi(argv[7]);
  const auto engine = vireo::Engine::load(options);
  vireo::Part picture, text;
  picture.kind = vireo::Part::Kind::kImage;
  picture.image.path = argv[2];
  text.text = argv[3];
  vireo::Request request;
  request.messages = {{"user", {picture, text}, "", {}}};
  engine->set_prompt(request);
  std::ofstream out(argv[5], std::ios::binary);
  std::vector<float> logits = engine->prefill();
  for (int step = 0, steps = std::atoi(argv[4]); step <= steps; ++step) {
    out.write(reinterpret_cast<const char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
    const auto id = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::printf("%s%d", step == 0 ? "[" : ", ", id);
    if (step < steps) logits = engine->decode_step(id);
  }
  std::printf("]\n");
  return 0;
} catch (const vireo::Error& e) {
  std::fprintf(stderr, "vireo_logits: %s\n", e.what());
  return 1;
}
