#include "base/wrapped_text.hpp"

#include <algorithm>

namespace switchyard {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Characters of UTF-8.
size_t width(std::string_view part) {
  return static_cast<size_t>(std::ranges::count_if(part, [](char c) { return (c & 0xc0) != 0x80; }));
}

// label: so many characters of the first line have no break.
std::string wrapped_line(std::string_view text, size_t indent, size_t columns, size_t label = 0) {
  size_t end = label == 0 ? 0 : std::min(text.find(' ', label), text.size());
  std::string all, line(text.substr(0, end));
  bool empty = end == 0;  // no word on the line yet
  const auto end_line = [&] {
    all += line + "\n";
    line.assign(indent, ' ');
    empty = true;
  };
  for (size_t begin = 0; (begin = text.find_first_not_of(' ', end)) != kNone;) {
    const size_t spaces = begin - end;
    end = std::min(text.find(' ', begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    if (!empty && width(line) + spaces + width(word) > columns)
      end_line();
    else
      line.append(spaces, ' ');
    while (width(line) < columns && width(line) + width(word) > columns) {
      const size_t comma = word.rfind(',', columns - width(line) - 1);
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

std::string wrapped(std::string_view text, size_t indent, size_t columns) {
  std::string all;
  while (true) {
    const size_t end = text.find('\n');
    all += wrapped_line(text.substr(0, end), indent, columns);
    if (end == kNone) return all;
    all += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string wrapped_on_terminal(std::string_view text, size_t columns, size_t indent) {
  return columns == 0 ? std::string(text) : wrapped_line(text, std::min(indent, columns / 4), columns - 1, indent);
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
