// The one exception type of Vireo: a kind that front ends map to an exit code, an HTTP status or a Python exception,
// and one sentence that names the thing, the value, the limit and the way out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace vireo {

enum class ErrorKind {
  kUsage,      // an option or argument outside its allowed set; nothing was touched
  kInput,      // a file, image, message or checkpoint is wrong
  kNotFound,   // a file, model or tensor is not there
  kCapacity,   // it is right but does not fit: memory, max_seq, pixels
  kDevice,     // the device or the numbers it produced failed
  kCancelled,  // the caller asked to stop
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace vireo
