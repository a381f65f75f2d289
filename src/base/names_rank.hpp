// Messages of ranks.
#pragma once

#include <string_view>

namespace switchyard {

/// Whether a message begins with the rank that it is of, such as "rank 5 (host b): ...".
inline bool names_rank(std::string_view message) {
  constexpr std::string_view kWord = "rank ";
  return message.starts_with(kWord) && message.size() > kWord.size() && message[kWord.size()] >= '0' &&
         message[kWord.size()] <= '9';
}

}  // namespace switchyard
