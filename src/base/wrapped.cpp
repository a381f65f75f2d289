#include "base/wrapped.hpp"

#include <algorithm>

namespace switchyard {

std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  if (columns == 0) return std::string(text);
  const std::string margin(std::min(indent, columns / 4), ' ');
  const auto width = [](std::string_view part) {  // characters of UTF-8
    return static_cast<size_t>(std::ranges::count_if(part, [](char c) { return (c & 0xc0) != 0x80; }));
  };
  size_t end = std::min(text.find(' ', indent), text.size());
  std::string lines(text.substr(0, end));
  for (size_t used = width(lines); end < text.size();) {
    const size_t word = std::min(text.find_first_not_of(' ', end), text.size()),
                 after = std::min(text.find(' ', word), text.size());
    const size_t more = width(text.substr(end, after - end));
    if (used + more < columns) {
      lines += text.substr(end, after - end);
      used += more;
    } else {
      lines += '\n' + margin;
      lines += text.substr(word, after - word);
      used = margin.size() + width(text.substr(word, after - word));
    }
    end = after;
  }
  return lines;
}

}  // namespace switchyard
