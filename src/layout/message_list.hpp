// Lists of messages that are stored once and shared under different names of ranks and tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "layout/messages.hpp"

namespace switchyard::layout {

/// The numbers that replace 0, 1, ...; null: every number stays as it is.
using Names = std::shared_ptr<const std::vector<int>>;

/// Messages that cannot be changed, and an index by rank, made when it is first asked for (by any thread).
class MessagePattern {
 public:
  explicit MessagePattern(std::vector<Msg> messages)
      : storage_(std::make_shared<const std::vector<Msg>>(std::move(messages))), messages_(*storage_) {}
  /// `count` messages of a pattern from `first` on, not copied.
  MessagePattern(const MessagePattern& whole, size_t first, size_t count)
      : storage_(whole.storage_), messages_(whole.messages_.subspan(first, count)) {}
  std::span<const Msg> messages() const { return messages_; }
  /// Whether the rank is the source of a message, be it to itself.
  bool sends(int rank) const;
  /// The tensors of which the rank gets parts, be it from itself; ascending.
  std::span<const int> received(int rank) const;

 private:
  struct Index {
    std::vector<bool> sends;
    std::vector<std::vector<int>> received;
  };
  const Index& index() const;

  std::shared_ptr<const std::vector<Msg>> storage_;
  std::span<const Msg> messages_;  // in storage_
  mutable std::once_flag once_;
  mutable Index index_;
};

/// A list of messages that cannot be changed. Copies share it. It has a pattern of numbers; `ranks` gives the names of
/// sources and destinations, `tensors` those of tensors. Its elements are returned with these names.
class MessageList {
 public:
  using Pattern = std::shared_ptr<const MessagePattern>;

  MessageList() = default;
  MessageList(std::vector<Msg> messages) : pattern_(std::make_shared<const MessagePattern>(std::move(messages))) {}
  MessageList(std::initializer_list<Msg> messages) : MessageList(std::vector<Msg>(messages)) {}
  MessageList(Pattern pattern, Names ranks, Names tensors)
      : pattern_(std::move(pattern)), ranks_(std::move(ranks)), tensors_(std::move(tensors)) {}

  size_t size() const { return pattern_ ? pattern_->messages().size() : 0; }
  bool empty() const { return size() == 0; }
  Msg operator[](size_t i) const {
    Msg msg = pattern_->messages()[i];
    if (ranks_) {
      msg.src = (*ranks_)[static_cast<size_t>(msg.src)];
      msg.dst = (*ranks_)[static_cast<size_t>(msg.dst)];
    }
    if (tensors_) msg.tensor = (*tensors_)[static_cast<size_t>(msg.tensor)];
    return msg;
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Msg;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Msg;
    Iterator() = default;
    Iterator(const MessageList& list, size_t at) : list_(&list), at_(at) {}
    Msg operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++at_;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const MessageList* list_ = nullptr;
    size_t at_ = 0;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  /// The same as the functions of MessagePattern, with the list's names of ranks and tensors.
  bool sends(int rank) const;
  bool receives(int rank) const { return pattern_ && !pattern_->received(number_of(rank)).empty(); }
  std::vector<int> received(int rank) const;
  /// A rank's number in the pattern; -1: none has this name.
  int number_of(int rank) const;

  const Pattern& pattern() const { return pattern_; }
  const Names& ranks() const { return ranks_; }
  const Names& tensors() const { return tensors_; }
  operator std::vector<Msg>() const { return {begin(), end()}; }
  bool operator==(const MessageList& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  Pattern pattern_;
  Names ranks_, tensors_;
};

}  // namespace switchyard::layout
