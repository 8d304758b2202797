// An outside program: asks the checkpoint argv[1] the question argv[2] about the picture argv[3].
// SPDX-License-Identifier: Apache-2.0
#include <vireo/tools.h>
#include <vireo/vireo.h>

#include <iostream>

namespace {

vireo::Part text_part(const char* text) {
  vireo::Part part;
  part.text = text;
  return part;
}

vireo::Part image_part(const char* path) {
  vireo::Part part;
  part.kind = vireo::Part::Kind::kImage;
  part.image.path = path;
  return part;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    vireo::Options options;
    options.checkpoint = argv[1];
    vireo::Request request;
    request.messages.push_back({"user", {image_part(argv[3]), text_part(argv[2])}, "", {}});
    std::cout << vireo::inspect_checkpoint(argv[1], {}).model_type << '\n';
    std::cout << vireo::Engine::load(options)->generate(request).text << '\n';
  } catch (const vireo::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
