#include "comm/tcp_fabric.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/message_fabric.hpp"
#include "comm/outbox.hpp"
#include "comm/silence.hpp"
#include "comm/tcp_mesh.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

constexpr i64 kReasonBytes = 1024;   // longest abort message
constexpr i64 kPollBytes = 4 << 20;  // read from one peer before the others have their turn

// A message that a peer announced, with its bytes if it is small.
struct Offer {
  Envelope envelope;
  std::uint64_t id;
  std::vector<std::byte> eager;
  bool asked;
};

struct MessageQueue {
  std::deque<Message*> waiting;
  std::deque<Offer> offers;
};

// A receive of which parts are to come.
struct Granted {
  Message* message = nullptr;
  i64 received = 0;
};

struct Peer {
  Descriptor socket;
  Outbox outgoing;
  std::map<int, MessageQueue> queues;        // by channel
  std::map<std::uint64_t, Message*> asked;   // sends that wait for a grant
  std::map<std::uint64_t, Granted> granted;  // receives
  std::uint64_t next_id = 0;
  bool said_goodbye = false;

  // The frame being read, and where its body goes.
  Frame incoming;
  i64 read = 0;
  std::vector<std::byte> store;
  Granted* target = nullptr;  // where parts go
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<Arrivals> arrivals, int rank, Mesh mesh, const FabricOptions& options)
      : arrivals_(std::move(arrivals)),
        rank_(rank),
        cluster_(std::move(mesh.cluster)),
        options_(options),
        signs_(options.timeout),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    peers_.resize(mesh.sockets.size());
    for (size_t r = 0; r < peers_.size(); ++r) peers_[r].socket = std::move(mesh.sockets[r]);
    progress_ = std::thread([this] { progress(); });
  }

  ~TcpTransport() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake();
    progress_.join();
  }

  int rank() const override { return rank_; }
  const cluster::Cluster& cluster() const override { return cluster_; }

  void post(std::span<Message* const> messages) override {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      inbox_.insert(inbox_.end(), messages.begin(), messages.end());
    }
    wake();
  }

  void works() override { signs_.worked(); }

  void stop(const std::string& reason) override {
    std::unique_lock lock(mutex_);
    if (!stopping_) reason_ = reason;
    stopping_ = true;
    wake();
    quiet_.wait_for(lock, 5s, [this] { return quiesced_; });
  }

 private:
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.fd(), &one, sizeof one);
  }

  // ---- the progress thread: everything below runs on it alone ----

  void progress() {
    try {
      const auto step = std::chrono::ceil<std::chrono::milliseconds>(signs_.step());
      while (take_news()) {
        if (signs_.due()) sign();
        poll(static_cast<int>(step.count()));
      }
      if (!failed()) say_goodbye();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    if (const auto reason = failed()) pass_on(*reason);
    std::lock_guard lock(mutex_);
    quiesced_ = true;
    quiet_.notify_all();
  }

  void fail(const std::string& reason) {
    arrivals_->fail(reason);
    std::lock_guard lock(mutex_);
    if (!stopping_) reason_ = reason;
    stopping_ = true;
  }

  bool take_news() {
    std::vector<Message*> posted;
    {
      std::lock_guard lock(mutex_);
      if (closing_ || stopping_) return false;
      posted.swap(inbox_);
    }
    for (Message* message : posted) {
      Peer& peer = peers_[static_cast<size_t>(message->peer)];
      if (message->send) {
        start_send(peer, *message);
      } else {
        MessageQueue& queue = peer.queues[message->channel];
        queue.waiting.push_back(message);
        match(peer, queue);
      }
    }
    return true;
  }

  // A peer that has yet to take what it was sent before hears of this rank by that.
  void sign() {
    for (Peer& peer : peers_)
      if (peer.socket.fd() >= 0 && peer.outgoing.empty()) peer.outgoing.add({.kind = Frame::Kind::works});
  }

  static void start_send(Peer& peer, Message& message) {
    Frame frame{.kind = Frame::Kind::eager,
                .channel = message.channel,
                .body = message.envelope.bytes,
                .envelope = message.envelope};
    if (message.envelope.bytes <= kEagerBytes) {
      peer.outgoing.add(frame, message);
      return;
    }
    frame.kind = Frame::Kind::ask, frame.body = 0, frame.id = peer.next_id++;
    peer.asked[frame.id] = &message;
    peer.outgoing.add(frame);
  }

  void match(Peer& peer, MessageQueue& queue) {
    while (!queue.waiting.empty() && !queue.offers.empty()) {
      Message& message = *queue.waiting.front();
      const Offer offer = std::move(queue.offers.front());
      queue.waiting.pop_front();
      queue.offers.pop_front();
      message.announce(offer.envelope);
      if (offer.asked && message.theirs == message.envelope) {
        peer.granted[offer.id] = {&message};
        peer.outgoing.add({.kind = Frame::Kind::grant, .id = offer.id});
        continue;
      }
      if (message.theirs == message.envelope && !offer.eager.empty())
        std::memcpy(message.data, offer.eager.data(), offer.eager.size());
      arrivals_->finish(message);  // if the envelopes differ, the receiver reports it and aborts
    }
  }

  // Sleeps until a socket is ready or a message is posted, then handles it.
  void poll(int milliseconds) {
    std::vector<pollfd> entries{{wake_.fd(), POLLIN, 0}};
    std::vector<size_t> ranks;
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (peers_[r].socket.fd() < 0) continue;
      const short events = static_cast<short>(peers_[r].outgoing.empty() ? POLLIN : POLLIN | POLLOUT);
      entries.push_back({peers_[r].socket.fd(), events, 0});
      ranks.push_back(r);
    }
    if (::poll(entries.data(), entries.size(), milliseconds) < 0 && errno != EINTR)
      cluster_error("rank {}: poll failed: {}", rank_, std::strerror(errno));
    std::uint64_t posts = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.fd(), &posts, sizeof posts);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (entries[i + 1].revents & POLLOUT) write(ranks[i]);
      if (entries[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) read(ranks[i]);
    }
  }

  void lose(size_t rank, const std::string& how) {
    Peer& peer = peers_[rank];
    peer.socket = Descriptor();
    peer.outgoing = {};
    if (!peer.said_goodbye)
      fail(fmt::format("{}: {} is gone ({}). See its log.", rank_label(rank_, cluster_),
                       rank_label(static_cast<int>(rank), cluster_), how));
  }

  void write(size_t rank) {
    Peer& peer = peers_[rank];
    for (Outbox::Bytes bytes = peer.outgoing.next(); bytes.count > 0; bytes = peer.outgoing.next()) {
      const ssize_t n = ::send(peer.socket.fd(), bytes.from, static_cast<size_t>(bytes.count),
                               MSG_NOSIGNAL | (bytes.more ? MSG_MORE : 0));
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n < 0) return lose(rank, std::strerror(errno));
      if (peer.outgoing.in_part()) arrivals_->moved(static_cast<int>(rank), true);
      if (Message* sent = peer.outgoing.written(n)) arrivals_->finish(*sent);
    }
  }

  void read(size_t rank) {
    Peer& peer = peers_[rank];
    const auto header = static_cast<i64>(sizeof(Frame));
    for (i64 budget = kPollBytes; budget > 0;) {
      const bool in_header = peer.read < header;
      std::byte* to =
          in_header ? reinterpret_cast<std::byte*>(&peer.incoming) + peer.read : body_of(peer) + (peer.read - header);
      const i64 left = (in_header ? header : header + peer.incoming.body) - peer.read;
      const ssize_t n = ::recv(peer.socket.fd(), to, static_cast<size_t>(left), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) return lose(rank, n == 0 ? "it closed the connection" : std::strerror(errno));
      peer.read += n, budget -= n;
      if (!in_header && peer.target != nullptr) arrivals_->moved(static_cast<int>(rank), false);
      if (peer.read == header) open_frame(peer);
      if (peer.read >= header && peer.read == header + peer.incoming.body) {
        peer.read = 0;
        take_frame(peer);
      }
    }
  }

  static std::byte* body_of(Peer& peer) {
    return peer.target != nullptr ? peer.target->message->data + peer.target->received : peer.store.data();
  }

  void open_frame(Peer& peer) {
    peer.target = nullptr;
    if (peer.incoming.kind == Frame::Kind::part) {
      const auto granted = peer.granted.find(peer.incoming.id);
      check(granted != peer.granted.end() && peer.incoming.body > 0 &&
                granted->second.received + peer.incoming.body <= granted->second.message->envelope.bytes,
            "rank {}: a part of {} bytes without a grant", rank_, peer.incoming.body);
      peer.target = &granted->second;
      return;
    }
    check(peer.incoming.body >= 0 && peer.incoming.body <= kEagerBytes, "rank {}: frame of {} bytes", rank_,
          peer.incoming.body);
    peer.store.resize(static_cast<size_t>(peer.incoming.body));
  }

  void take_frame(Peer& peer) {
    const Frame& frame = peer.incoming;
    switch (frame.kind) {
      case Frame::Kind::eager:
      case Frame::Kind::ask: {
        MessageQueue& queue = peer.queues[frame.channel];
        queue.offers.push_back({.envelope = frame.envelope,
                                .id = frame.id,
                                .eager = std::exchange(peer.store, {}),
                                .asked = frame.kind == Frame::Kind::ask});
        return match(peer, queue);
      }
      case Frame::Kind::grant: {
        Message* message = peer.asked.at(frame.id);
        peer.asked.erase(frame.id);
        return peer.outgoing.add_parts(frame.id, *message);
      }
      case Frame::Kind::part: {
        peer.target->received += frame.body;
        Message& message = *peer.target->message;
        if (peer.target->received < message.envelope.bytes) return;
        peer.granted.erase(frame.id);
        return arrivals_->finish(message);
      }
      case Frame::Kind::works:
        return arrivals_->works();
      case Frame::Kind::reason:
        return fail({reinterpret_cast<const char*>(peer.store.data()), peer.store.size()});
      case Frame::Kind::goodbye:
        peer.said_goodbye = true;
        return;
    }
  }

  std::optional<std::string> failed() {
    std::lock_guard lock(mutex_);
    if (!stopping_) return std::nullopt;
    return reason_.substr(0, kReasonBytes);
  }

  // Regular end, with no message under way: waits for the goodbye of all peers, because closing earlier could lose the
  // last bytes sent to a peer. The wait is bounded by the timeout, as this rank's work is done.
  void say_goodbye() {
    for (Peer& peer : peers_)
      if (peer.socket.fd() >= 0) peer.outgoing.add({.kind = Frame::Kind::goodbye});
    const auto busy = [](const Peer& peer) {
      return peer.socket.fd() >= 0 && !(peer.said_goodbye && peer.outgoing.empty());
    };
    const auto until = Clock::now() + options_.timeout;
    while (!failed()) {
      const auto late = std::find_if(peers_.begin(), peers_.end(), busy);
      if (late == peers_.end()) return;
      if (Clock::now() >= until) {
        const auto peer = static_cast<int>(late - peers_.begin());
        if (options_.say)
          options_.say(not_ended(rank_label(rank_, cluster_), rank_label(peer, cluster_), options_.timeout));
        return;
      }
      poll(static_cast<int>(std::min<i64>(100, options_.timeout.count())));
    }
  }

  // Every rank passes a failure on, so that all get the reason before they see a connection end. Frames that are partly
  // written are completed first; incoming data is discarded.
  void pass_on(const std::string& reason) {
    for (Peer& peer : peers_) {
      peer.outgoing.clear();
      peer.outgoing.add({.kind = Frame::Kind::reason}, reason);
      peer.said_goodbye = true;
    }
    const auto until = Clock::now() + 2s;
    while (Clock::now() < until) {
      bool open = false;
      for (size_t r = 0; r < peers_.size(); ++r) open |= drain(r);
      if (!open) return;
      std::this_thread::sleep_for(1ms);
    }
  }

  // Writes what is left, then waits until the peer closes; false once it has.
  bool drain(size_t rank) {
    Peer& peer = peers_[rank];
    if (peer.socket.fd() < 0) return false;
    if (!peer.outgoing.empty()) {
      write(rank);
      if (peer.socket.fd() >= 0 && peer.outgoing.empty()) ::shutdown(peer.socket.fd(), SHUT_WR);
    }
    dropped_.resize(static_cast<size_t>(kEagerBytes));
    const ssize_t n = peer.socket.fd() < 0 ? 0 : ::recv(peer.socket.fd(), dropped_.data(), dropped_.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) peer.socket = Descriptor();
    return peer.socket.fd() >= 0;
  }

  std::shared_ptr<Arrivals> arrivals_;
  int rank_;
  cluster::Cluster cluster_;
  const FabricOptions options_;
  WorkSigns signs_;
  Descriptor wake_;
  std::vector<Peer> peers_;
  std::vector<std::byte> dropped_;

  std::mutex mutex_;
  std::condition_variable quiet_;
  std::vector<Message*> inbox_;
  std::string reason_;
  bool closing_ = false, stopping_ = false, quiesced_ = false;
  std::thread progress_;
};

}  // namespace

std::unique_ptr<Fabric> tcp_fabric(const Launch& launch, FabricOptions options) {
  auto arrivals = std::make_shared<Arrivals>();
  auto transport = std::make_unique<TcpTransport>(arrivals, launch.rank, tcp_mesh(launch, options), options);
  return std::make_unique<MessageFabric>(std::move(options), std::move(arrivals), std::move(transport));
}

}  // namespace switchyard::comm
