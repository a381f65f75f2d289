#include "files/json_lines.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.hpp"

namespace switchyard::files {

namespace {

using nlohmann::json;

bool is_above(const json& object, i64 step) {
  return object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
         object["step"].get<i64>() > step;
}

/// Keeps the complete lines up to `step`; the log is replaced only if that changes it.
void keep_until(const std::filesystem::path& path, i64 step) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_text(path);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end + 1 - begin);
    const json object = json::parse(line, nullptr, false);
    if (!object.is_discarded() && !is_above(object, step)) kept += line;
    begin = end + 1;
  }
  if (kept != text) write_text(path, kept);
}

}  // namespace

JsonLines JsonLines::open(const std::filesystem::path& folder, i64 step, const char* name) {
  make_folder(folder);
  JsonLines log;
  log.path_ = folder / name;
  keep_until(log.path_, step);
  log.file_ = open_for_appending(log.path_);
  return log;
}

void JsonLines::append(const nlohmann::ordered_json& object) {
  // Each line is one write, so a killed run leaves at most the last line incomplete.
  const std::string line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  write_all(file_, std::as_bytes(std::span(line)), -1, path_, static_cast<i64>(line.size()));
}

}  // namespace switchyard::files
