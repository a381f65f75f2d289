#include "layout/messages.hpp"

#include <algorithm>
#include <tuple>

namespace switchyard::layout {

void sort_messages(std::vector<Msg>& messages) {
  std::sort(messages.begin(), messages.end(), [](const Msg& a, const Msg& b) {
    return std::tie(a.src, a.dst, a.tensor, a.box.lo) < std::tie(b.src, b.dst, b.tensor, b.box.lo);
  });
}

}  // namespace switchyard::layout
