#include "comm/outbox.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

constexpr auto kHeader = static_cast<i64>(sizeof(Frame));

}  // namespace

void Outbox::add(const Frame& frame, std::string text) {
  frames_.push_back({.frame = frame, .text = std::move(text)});
  frames_.back().frame.body = static_cast<i64>(frames_.back().text.size());
}

void Outbox::clear() {
  frames_.clear();
  granted_.clear();
  if (writing_ && writing_->written == 0) writing_.reset();
}

void Outbox::take_part() {
  Granted& next = granted_.front();
  const i64 all = next.message->envelope.bytes, bytes = std::min(kPartBytes, all - next.taken);
  writing_ = {.frame = {.kind = Frame::Kind::part, .id = next.id, .body = bytes},
              .body = next.message->data + next.taken};
  next.taken += bytes;
  if (next.taken < all) return;
  writing_->sent = next.message;
  granted_.pop_front();
}

Outbox::Bytes Outbox::next() {
  if (!writing_ && !frames_.empty()) {
    writing_ = std::move(frames_.front());
    frames_.pop_front();
  } else if (!writing_ && !granted_.empty()) {
    take_part();
  }
  if (!writing_) return {};
  const Outgoing& out = *writing_;
  if (out.written < kHeader)
    return {reinterpret_cast<const std::byte*>(&out.frame) + out.written, kHeader - out.written, out.frame.body > 0};
  const std::byte* body = out.text.empty() ? out.body : reinterpret_cast<const std::byte*>(out.text.data());
  const i64 done = out.written - kHeader;
  return {body + done, out.frame.body - done, false};
}

Message* Outbox::written(i64 count) {
  check(writing_ && count <= kHeader + writing_->frame.body - writing_->written, "{} bytes written of no frame", count);
  writing_->written += count;
  if (writing_->written < kHeader + writing_->frame.body) return nullptr;
  Message* sent = writing_->sent;
  writing_.reset();
  return sent;
}

}  // namespace switchyard::comm
