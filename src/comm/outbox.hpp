// What a rank has to write to another one, in frames on one connection.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "comm/message_fabric.hpp"

namespace switchyard::comm {

constexpr i64 kEagerBytes = 32 << 10;  // largest message that is sent without asking the receiver
constexpr i64 kPartBytes = 512 << 10;  // largest frame with a part of a message

/// Header on the wire, followed by its body. Small messages are sent at once. For a large one the sender asks first,
/// and sends it when the receiver has a place for it, so that a rank that is ahead does not fill another rank's memory.
struct Frame {
  enum class Kind : std::uint32_t { eager, ask, grant, part, works, reason, goodbye };
  Kind kind = Kind::eager;
  int channel = 0;         // eager, ask
  std::uint64_t id = 0;    // ask, grant, part: of the sender's request
  i64 body = 0;            // bytes that follow
  Envelope envelope = {};  // eager, ask
};

/// Frames in the order in which they are written. Large messages go in parts, one message after the other, and all
/// other frames go before the next part: a grant behind a large message would keep the other direction of the link
/// idle until that has been sent.
class Outbox {
 public:
  /// A frame without a body.
  void add(const Frame& frame) { frames_.push_back({.frame = frame}); }
  /// A frame with the bytes of a small message, which is sent when they are written.
  void add(const Frame& frame, Message& message) { frames_.push_back({frame, message.data, &message}); }
  /// A frame with a text.
  void add(const Frame& frame, std::string text);
  /// A large message that the receiver has a place for. id: of the frame that asked for it.
  void add_parts(std::uint64_t id, Message& message) { granted_.push_back({id, &message}); }
  /// Drops all but a frame of which some bytes are written.
  void clear();
  bool empty() const { return !writing_ && frames_.empty() && granted_.empty(); }

  /// The next bytes to be written; none: there is nothing to write. more: others of the same frame follow.
  struct Bytes {
    const std::byte* from = nullptr;
    i64 count = 0;
    bool more = false;
  };
  Bytes next();
  /// Whether these are of a part of a large message.
  bool in_part() const { return writing_ && writing_->frame.kind == Frame::Kind::part; }
  /// So many of these are written. Returns a message that is sent now, or null.
  Message* written(i64 count);

 private:
  struct Outgoing {
    Frame frame{};
    const std::byte* body = nullptr;
    Message* sent = nullptr;  // when all is written
    std::string text{};       // the body, if there is one
    i64 written = 0;          // bytes of header and body
  };
  struct Granted {
    std::uint64_t id = 0;
    Message* message = nullptr;
    i64 taken = 0;  // bytes in earlier parts
  };
  void take_part();

  std::optional<Outgoing> writing_;
  std::deque<Outgoing> frames_;
  std::deque<Granted> granted_;
};

}  // namespace switchyard::comm
