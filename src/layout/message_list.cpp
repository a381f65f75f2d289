#include "layout/message_list.hpp"

namespace switchyard::layout {

bool MessagePattern::sends(int rank) const {
  const std::vector<bool>& sends = index().sends;
  return static_cast<size_t>(rank) < sends.size() && sends[static_cast<size_t>(rank)];
}

std::span<const int> MessagePattern::received(int rank) const {
  const std::vector<std::vector<int>>& received = index().received;
  if (static_cast<size_t>(rank) >= received.size()) return {};
  return received[static_cast<size_t>(rank)];
}

const MessagePattern::Index& MessagePattern::index() const {
  std::call_once(once_, [&] {
    int ranks = 0, tensors = 0;
    for (const Msg& msg : messages_) {
      ranks = std::max({ranks, msg.src + 1, msg.dst + 1});
      tensors = std::max(tensors, msg.tensor + 1);
    }
    index_.sends.resize(static_cast<size_t>(ranks));
    index_.received.resize(static_cast<size_t>(ranks));
    std::vector<bool> gets(static_cast<size_t>(ranks) * static_cast<size_t>(tensors));
    for (const Msg& msg : messages_) {
      index_.sends[static_cast<size_t>(msg.src)] = true;
      gets[static_cast<size_t>(msg.dst) * static_cast<size_t>(tensors) + static_cast<size_t>(msg.tensor)] = true;
    }
    for (size_t at = 0; at < gets.size(); ++at)
      if (gets[at])
        index_.received[at / static_cast<size_t>(tensors)].push_back(
            static_cast<int>(at % static_cast<size_t>(tensors)));
  });
  return index_;
}

bool MessageList::sends(int rank) const { return pattern_ && pattern_->sends(number_of(rank)); }

std::vector<int> MessageList::received(int rank) const {
  if (!pattern_) return {};
  const std::span<const int> numbers = pattern_->received(number_of(rank));
  std::vector<int> names(numbers.begin(), numbers.end());
  if (tensors_)
    for (int& name : names) name = (*tensors_)[static_cast<size_t>(name)];
  return names;
}

int MessageList::number_of(int rank) const {
  if (!ranks_) return rank;
  const auto at = std::ranges::find(*ranks_, rank);
  return at == ranks_->end() ? -1 : static_cast<int>(at - ranks_->begin());
}

}  // namespace switchyard::layout
