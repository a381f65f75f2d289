#include "base/wrapped_text.hpp"

#include <algorithm>

namespace switchyard {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string wrapped_line(std::string_view text, size_t indent) {
  std::string all, line;
  bool empty = true;  // no word on the line yet
  const auto end_line = [&] {
    all += line + "\n";
    line.assign(indent, ' ');
    empty = true;
  };
  for (size_t begin = 0, end = 0; (begin = text.find_first_not_of(' ', end)) != kNone;) {
    const size_t spaces = begin - end;
    end = std::min(text.find(' ', begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    if (!empty && line.size() + spaces + word.size() > kTextColumns)
      end_line();
    else
      line.append(spaces, ' ');
    while (line.size() < kTextColumns && line.size() + word.size() > kTextColumns) {
      const size_t comma = word.rfind(',', kTextColumns - line.size() - 1);
      if (comma == kNone) break;
      line += word.substr(0, comma + 1);
      word.remove_prefix(comma + 1);
      end_line();
    }
    line += word;
    empty = false;
  }
  return all + line;
}

}  // namespace

std::string wrapped(std::string_view text, size_t indent) {
  std::string all;
  while (true) {
    const size_t end = text.find('\n');
    all += wrapped_line(text.substr(0, end), indent);
    if (end == kNone) return all;
    all += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string part_per_line(std::string_view text, size_t indent) {
  constexpr size_t kFurther = 4;
  constexpr std::string_view kSeparator = "; ";
  std::string all;
  while (true) {
    const size_t end = text.find(kSeparator);
    all += wrapped(std::string(indent, ' ') + std::string(text.substr(0, end)), indent + kFurther) + "\n";
    if (end == kNone) return all;
    text.remove_prefix(end + kSeparator.size());
  }
}

}  // namespace switchyard
