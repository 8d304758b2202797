// Chat messages from untrusted JSON: Hugging Face parts and OpenAI parts, data: URIs and paths.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "engine/base64.h"
#include "files/json.h"
#include "files/quote.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

// Where in the document we are, for messages ("messages[2].content[0]").
[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kInput, where + " " + what);
}

const std::string& text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) refuse(where, fmt::format("is {}, not a string", value.type_name()));
  return value.get_ref<const std::string&>();
}

// Tables saved as JSON give every part every key, null where it has none.
const Json* find_value(const Json& object, const char* key) {
  const Json* value = find_key(object, key);
  return value && value->is_null() ? nullptr : value;
}

class Parser {
 public:
  explicit Parser(const std::filesystem::path& folder) : folder_(folder) {}

  Message message(const Json& m, const std::string& where) const {
    if (!m.is_object()) refuse(where, fmt::format("is {}, not an object with role and content", m.type_name()));
    Message out;
    const Json* role = find_key(m, "role");
    if (!role) refuse(where, "has no role: use system, user, assistant or tool");
    out.role = text_of(*role, where + ".role");
    if (out.role == "developer") out.role = "system";
    if (const Json* content = find_key(m, "content")) out.content = parts(*content, where + ".content");
    const Json* calls = find_key(m, "tool_calls");
    if (calls && !calls->is_null() && !calls->empty()) out.tool_calls = calls->dump();
    const Json* reasoning = find_key(m, "reasoning_content");
    if (reasoning && reasoning->is_string()) out.reasoning = reasoning->get<std::string>();
    return out;
  }

 private:
  std::vector<Part> parts(const Json& content, const std::string& where) const {
    if (content.is_null()) return {};
    if (content.is_string()) return {{.kind = Part::Kind::kText, .text = content.get<std::string>()}};
    if (!content.is_array()) refuse(where, fmt::format("is {}: use a string or a list of parts", content.type_name()));
    std::vector<Part> out;
    for (size_t i = 0; i < content.size(); ++i) out.push_back(part(content[i], fmt::format("{}[{}]", where, i)));
    return out;
  }

  Part part(const Json& p, const std::string& where) const {
    if (p.is_string()) return {.kind = Part::Kind::kText, .text = p.get<std::string>()};
    if (!p.is_object())
      refuse(where, fmt::format("is {}: use {{\"type\": \"text\" | \"image\" | \"video\", ...}}", p.type_name()));
    for (const char* key : {"image", "image_url", "image_path"}) {
      if (const Json* image = find_value(p, key))
        return {.kind = Part::Kind::kImage, .image = picture(*image, where + "." + key)};
    }
    for (const char* key : {"video", "video_url"}) {
      if (const Json* video = find_value(p, key)) return clip(p, *video, where + "." + key);
    }
    if (const Json* text = find_value(p, "text"))
      return {.kind = Part::Kind::kText, .text = text_of(*text, where + ".text")};
    const std::string type = get_string_or(p, "type", where, "");
    refuse(where, fmt::format("{} none of the keys text, image, image_url, video",
                              type.empty() ? "has" : "is of type " + in_quotes(type) + " and has"));
  }

  // A path, a file: or data: URI, or {"url": one of them}.
  Picture picture(const Json& value, const std::string& where) const {
    if (value.is_object()) {
      const Json* url = find_key(value, "url");
      if (!url) refuse(where, "has no url");
      return picture(*url, where + ".url");
    }
    const std::string& text = text_of(value, where);
    if (text.rfind("data:", 0) == 0) return {.bytes = data_uri(text, where)};
    if (text.rfind("http://", 0) == 0 || text.rfind("https://", 0) == 0) {
      refuse(where,
             "is a web address, and nothing is ever fetched: save the picture and give its path, or send a data: URI");
    }
    if (text.empty()) refuse(where, "is empty: give a path or a data: URI");
    const std::filesystem::path path = text.rfind("file://", 0) == 0 ? text.substr(7) : text;
    return {.path = path.is_absolute() ? path : folder_ / path};
  }

  static std::vector<std::byte> data_uri(const std::string& uri, const std::string& where) {
    const size_t comma = uri.find(',');
    if (comma == std::string::npos || uri.substr(0, comma).find(";base64") == std::string::npos) {
      refuse(where, "is a data: URI that is not of the form data:image/png;base64,...");
    }
    auto bytes = decode_base64(std::string_view(uri).substr(comma + 1));
    if (!bytes) refuse(where, "holds a character that is not base64");
    return std::move(*bytes);
  }

  Part clip(const Json& p, const Json& video, const std::string& where) const {
    Part out{.kind = Part::Kind::kVideo};
    if (video.is_array()) {
      for (size_t i = 0; i < video.size(); ++i)
        out.video.frames.push_back(picture(video[i], fmt::format("{}[{}]", where, i)));
    } else {
      out.video.gif = picture(video, where);
    }
    out.video.fps = get_double_or(p, "fps", where, 0.0);
    if (out.video.fps < 0)
      refuse(where, fmt::format("has fps {}: use a positive number of frames per second", out.video.fps));
    out.video.sample = get_bool_or(p, "do_sample_frames", where, false);
    return out;
  }

  const std::filesystem::path& folder_;
};

}  // namespace

Request parse_messages(std::string_view json, const std::filesystem::path& folder) {
  const Json document = parse_json(json, "messages");
  const Json* messages = &document;
  Request request;
  if (document.is_object()) {
    messages = find_key(document, "messages");
    if (!messages) throw Error(ErrorKind::kInput, "the JSON object has no key \"messages\"");
    if (const Json* tools = find_key(document, "tools"); tools && !tools->is_null()) request.tools = tools->dump();
    request.max_new_tokens =
        static_cast<int>(get_int_or(document, "max_new_tokens", "messages", 1, 1 << 30, request.max_new_tokens));
  }
  if (!messages->is_array()) {
    throw Error(ErrorKind::kInput, fmt::format("messages is {}, not a list of chat messages", messages->type_name()));
  }
  const Parser parser(folder);
  for (size_t i = 0; i < messages->size(); ++i) {
    request.messages.push_back(parser.message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  return request;
}

}  // namespace vireo
