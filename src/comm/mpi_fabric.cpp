#include "comm/mpi_fabric.hpp"

#include <mpi.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/host_names.hpp"
#include "comm/message_fabric.hpp"
#include "comm/silence.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

// The most bytes of a message in one request: MPI counts in int, and reports only whole requests as done.
constexpr i64 kPieceBytes = i64{64} << 20;
constexpr size_t kReasonBytes = 1024;         // longest abort message
constexpr int kReasonTag = 1, kWorksTag = 2;  // tags of the control communicator
constexpr int kHeaderTag = 0;
constexpr int kLeastTagBound = 32767;  // MPI_TAG_UB is at least this; MPI 4.1, section 9.1.2
constexpr std::chrono::microseconds kShortestNap = 5us, kLongestNap = 200us, kIdleNap = 5ms;

void must(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  cluster_error("MPI: {} failed: {}. See the logs of the other ranks.", call,
                std::string(text, static_cast<size_t>(length)));
}

// A communicator of its own, so that nothing else in the process can match our messages.
class Communicator {
 public:
  Communicator() {
    must(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    must(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  void free() { MPI_Comm_free(&comm_); }
  operator MPI_Comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// Sent ahead of a payload, on a tag of its own. The header identifies the channel, because many MPI libraries have few
// tags; payloads of one sender have the tags 1, 2, ... in turn.
struct Header {
  i64 number = 0;  // number of the payload among those from this sender to this receiver
  int channel = 0;
  Envelope envelope;
};

// A message in MPI's hands, and how many of its requests are open. A payload without a waiting message is received into
// `staged`.
struct Flight {
  Message* message = nullptr;
  int open = 0;
  Header header;
  std::unique_ptr<std::byte[]> staged;
};

// A message that a peer announced.
struct Offer {
  Header header;
  Flight* staging = nullptr;  // its payload is received already, or on its way
};

struct MessageQueue {
  std::deque<Message*> waiting;
  std::deque<std::shared_ptr<Offer>> offers;
};

struct Peer {
  std::map<int, MessageQueue> queues;               // by channel
  std::map<i64, std::shared_ptr<Offer>> unclaimed;  // by number: payloads whose receive has not been started
  int waiting = 0;                                  // messages, over all queues
  i64 sent = 0;                                     // payloads
  bool listening = false;                           // for the next header
  Flight hearing;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<Arrivals> arrivals, std::shared_ptr<MpiSession> session, const std::string& host,
               int tags, std::chrono::milliseconds timeout)
      : arrivals_(std::move(arrivals)), session_(std::move(session)), signs_(timeout) {
    must(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
    must(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
    void* bound = nullptr;
    int known = 0;
    must(MPI_Comm_get_attr(data_, MPI_TAG_UB, &bound, &known), "MPI_Comm_get_attr");
    tags_ =
        std::min(known ? *static_cast<int*>(bound) : kLeastTagBound, tags > 0 ? tags : std::numeric_limits<int>::max());
    peers_.resize(static_cast<size_t>(size_));
    exchange_hosts(host);
    progress_ = std::thread([this] { progress(); });
  }

  ~MpiTransport() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
      news_.notify_all();
    }
    progress_.join();
    if (stopping_) {
      session_->leave_unfinished();
    } else {
      data_.free();
      control_.free();
    }
  }

  int rank() const override { return rank_; }
  const cluster::Cluster& cluster() const override { return cluster_; }

  void post(std::span<Message* const> messages) override {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    inbox_.insert(inbox_.end(), messages.begin(), messages.end());
    news_.notify_all();
  }

  void works() override { signs_.worked(); }

  void stop(const std::string& reason) override {
    std::unique_lock lock(mutex_);
    if (!stopping_) reason_ = reason;
    stopping_ = true;
    news_.notify_all();
    quiet_.wait_for(lock, 5s, [this] { return quiesced_; });
  }

 private:
  void exchange_hosts(const std::string& host) {
    const HostId own = own_host(host);
    std::vector<HostId> all(static_cast<size_t>(size_));
    must(MPI_Allgather(own.data(), sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, data_), "MPI_Allgather");
    cluster_ = cluster_of_hosts(all);
  }

  // ---- the progress thread: everything below runs on it alone ----

  void progress() {
    try {
      listen_for_reasons();
      listen_for_signs();
      while (take_news()) {
        const bool moved = poll();
        hear_reason();
        hear_signs();
        if (signs_.due()) sign();
        last_move_ = moved ? Clock::now() : last_move_;
      }
    } catch (const std::exception& error) {
      arrivals_->fail(error.what());
      std::lock_guard lock(mutex_);
      if (!stopping_) reason_ = error.what();
      stopping_ = true;
    }
    wind_down();
    std::lock_guard lock(mutex_);
    quiesced_ = true;
    quiet_.notify_all();
  }

  // Starts the posted messages, and first sleeps for a while if there are none. False when it is time to end.
  bool take_news() {
    std::vector<Message*> posted;
    {
      std::unique_lock lock(mutex_);
      const auto something = [this] { return closing_ || stopping_ || !inbox_.empty(); };
      if (!something()) news_.wait_for(lock, nap(), something);
      if (closing_ || stopping_) return false;
      posted.swap(inbox_);
    }
    for (Message* message : posted) {
      if (message->send)
        start_send(*message);
      else
        start_receive(*message);
    }
    if (!posted.empty()) last_move_ = Clock::now();
    return true;
  }

  // Time to sleep: short while data flows, longer the longer nothing came, because many ranks may share few cores.
  std::chrono::microseconds nap() const {
    if (requests_.empty()) return kIdleNap;
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_move_) / 20;
    return std::clamp<std::chrono::microseconds>(idle, kShortestNap, kLongestNap);
  }

  enum class Part { send, header, payload };
  struct Slot {
    Flight* flight;
    Part part;
  };

  void add_request(MPI_Request request, Flight* flight, Part part) {
    requests_.push_back(request);
    slots_.push_back({flight, part});
    ++flight->open;
  }

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  int tag_of(const Header& header) const { return 1 + static_cast<int>(header.number % tags_); }

  void start_send(Message& message) {
    Flight* flight = new_flight(&message);
    flight->header = {message.envelope.bytes > 0 ? peer(message.peer).sent++ : 0, message.channel, message.envelope};
    MPI_Request request;
    must(MPI_Isend(&flight->header, sizeof(Header), MPI_BYTE, message.peer, kHeaderTag, data_, &request), "MPI_Isend");
    add_request(request, flight, Part::send);
    for_each_piece(message.data, message.envelope.bytes, [&](std::byte* data, int bytes) {
      must(MPI_Isend(data, bytes, MPI_BYTE, message.peer, tag_of(flight->header), data_, &request), "MPI_Isend");
      add_request(request, flight, Part::send);
    });
  }

  void start_receive(Message& message) {
    const int rank = message.peer;  // once matched, the message may be gone
    Peer& from = peer(rank);
    MessageQueue& queue = from.queues[message.channel];
    queue.waiting.push_back(&message);
    ++from.waiting;
    match(rank, queue);
    listen(rank);
  }

  // Receives a peer's next header, but only while a message waits for this peer: what no one waits for stays with the
  // sender.
  void listen(int rank) {
    Peer& from = peer(rank);
    if (from.listening || from.waiting == 0) return;
    from.listening = true;
    MPI_Request request;
    must(MPI_Irecv(&from.hearing.header, sizeof(Header), MPI_BYTE, rank, kHeaderTag, data_, &request), "MPI_Irecv");
    add_request(request, &from.hearing, Part::header);
  }

  void take_header(int rank) {
    Peer& from = peer(rank);
    from.listening = false;
    const auto offer = std::make_shared<Offer>(Offer{from.hearing.header});
    if (offer->header.envelope.bytes > 0) {
      free_tag(rank, offer->header.number);
      from.unclaimed.emplace(offer->header.number, offer);
    }
    MessageQueue& queue = from.queues[offer->header.channel];
    queue.offers.push_back(offer);
    match(rank, queue);
    listen(rank);
  }

  // MPI matches the payloads of one tag with receives in the order in which these are started. So an older payload of
  // the same tag, for which no message waits yet, is received into staging memory before the newer one is.
  void free_tag(int rank, i64 number) {
    Peer& from = peer(rank);
    while (!from.unclaimed.empty() && from.unclaimed.begin()->first <= number - tags_) {
      Offer& offer = *from.unclaimed.begin()->second;
      offer.staging = new_flight(nullptr);
      offer.staging->staged =
          std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(offer.header.envelope.bytes));
      receive_payload(rank, offer.header, offer.staging->staged.get(), offer.staging);
      from.unclaimed.erase(from.unclaimed.begin());
    }
  }

  void receive_payload(int rank, const Header& header, std::byte* to, Flight* flight) {
    MPI_Request request;
    for_each_piece(to, header.envelope.bytes, [&](std::byte* data, int bytes) {
      must(MPI_Irecv(data, bytes, MPI_BYTE, rank, tag_of(header), data_, &request), "MPI_Irecv");
      add_request(request, flight, Part::payload);
    });
  }

  void match(int rank, MessageQueue& queue) {
    Peer& from = peer(rank);
    while (!queue.waiting.empty() && !queue.offers.empty()) {
      Message& message = *queue.waiting.front();
      const std::shared_ptr<Offer> offer = queue.offers.front();
      queue.waiting.pop_front();
      queue.offers.pop_front();
      --from.waiting;
      message.announce(offer->header.envelope);
      if (message.theirs != message.envelope || message.envelope.bytes == 0) {
        arrivals_->finish(message);  // if the envelopes differ, the receiver reports it and aborts
      } else if (offer->staging != nullptr) {
        offer->staging->message = &message;
        if (offer->staging->open == 0) land(offer->staging);
      } else {
        from.unclaimed.erase(offer->header.number);
        receive_payload(rank, offer->header, message.data, new_flight(&message));
      }
    }
  }

  template <class Visit>
  static void for_each_piece(std::byte* data, i64 bytes, Visit visit) {
    for (i64 at = 0; at < bytes; at += kPieceBytes)
      visit(data + at, static_cast<int>(std::min(kPieceBytes, bytes - at)));
  }

  Flight* new_flight(Message* message) {
    auto flight = std::make_unique<Flight>();
    flight->message = message;
    Flight* at = flight.get();
    flights_.emplace(at, std::move(flight));
    return at;
  }

  // Called when all requests of a flight are complete. A staged payload waits for its message.
  void land(Flight* flight) {
    if (flight->message == nullptr) return;
    if (flight->staged)
      std::memcpy(flight->message->data, flight->staged.get(), static_cast<size_t>(flight->message->envelope.bytes));
    arrivals_->finish(*flight->message);
    flights_.erase(flight);
  }

  bool poll() {
    if (requests_.empty()) return false;
    const int count = static_cast<int>(requests_.size());
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int completed = 0;
    const int code = MPI_Testsome(count, requests_.data(), &completed, indices_.data(), statuses_.data());
    if (code == MPI_ERR_IN_STATUS)
      for (int i = 0; i < completed; ++i) must(statuses_[static_cast<size_t>(i)].MPI_ERROR, "a transfer");
    must(code, "MPI_Testsome");
    if (completed <= 0) return false;
    std::vector<Slot> ended;
    std::vector<int> heard;
    for (int i = 0; i < completed; ++i) {
      ended.push_back(slots_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]);
      if (ended.back().part == Part::header) heard.push_back(statuses_[static_cast<size_t>(i)].MPI_SOURCE);
    }
    drop_completed();
    for (const Slot& slot : ended) report_piece(slot);
    for (const Slot& slot : ended)
      if (--slot.flight->open == 0 && slot.part != Part::header) land(slot.flight);
    for (const int rank : heard) take_header(rank);
    return true;
  }

  void report_piece(const Slot& slot) {
    const Message* message = slot.flight->message;
    if (slot.part != Part::header && message != nullptr && message->envelope.bytes > kPieceBytes)
      arrivals_->moved(message->peer, message->send);
  }

  void drop_completed() {
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      slots_[kept++] = slots_[i];
    }
    requests_.resize(kept);
    slots_.resize(kept);
  }

  // ---- signs of work ----

  void listen_for_signs() {
    must(MPI_Irecv(&heard_sign_, 1, MPI_BYTE, MPI_ANY_SOURCE, kWorksTag, control_, &hearing_sign_), "MPI_Irecv");
  }

  void hear_signs() {
    for (int came = 1; came != 0;) {
      must(MPI_Test(&hearing_sign_, &came, MPI_STATUS_IGNORE), "MPI_Test");
      if (!came) return;
      arrivals_->works();
      listen_for_signs();
    }
  }

  // Not while an earlier sign is on its way.
  void sign() {
    int sent = 0;
    must(MPI_Testall(static_cast<int>(said_signs_.size()), said_signs_.data(), &sent, MPI_STATUSES_IGNORE),
         "MPI_Testall");
    if (!sent) return;
    said_signs_.clear();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      must(MPI_Isend(&said_sign_, 1, MPI_BYTE, peer, kWorksTag, control_, &said_signs_.emplace_back()), "MPI_Isend");
    }
  }

  // ---- aborts ----

  void listen_for_reasons() {
    must(MPI_Irecv(heard_.data(), kReasonBytes, MPI_BYTE, MPI_ANY_SOURCE, kReasonTag, control_, &hearing_),
         "MPI_Irecv");
  }

  void hear_reason() {
    int came = 0;
    must(MPI_Test(&hearing_, &came, MPI_STATUS_IGNORE), "MPI_Test");
    if (!came) return;
    arrivals_->fail(heard_.data());
    std::lock_guard lock(mutex_);
    stopping_ = informed_ = true;  // the rank that failed informs all others itself
  }

  bool has_to_tell() {
    std::lock_guard lock(mutex_);
    reason_.copy(said_.data(), kReasonBytes - 1);
    return stopping_ && !informed_;
  }

  // Passes the reason on, takes receives back, and never calls MPI again.
  void wind_down() {
    std::vector<MPI_Request> last;
    if (has_to_tell()) {
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        MPI_Request request;
        if (MPI_Isend(said_.data(), kReasonBytes, MPI_BYTE, peer, kReasonTag, control_, &request) == MPI_SUCCESS)
          last.push_back(request);
      }
    }
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (slots_[i].part == Part::send) continue;
      MPI_Cancel(&requests_[i]);
      last.push_back(requests_[i]);
    }
    for (MPI_Request hearing : {hearing_, hearing_sign_}) {
      if (hearing == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&hearing);
      last.push_back(hearing);
    }
    last.insert(last.end(), said_signs_.begin(), said_signs_.end());
    const auto until = Clock::now() + 2s;
    int all = 0;
    while (!all && Clock::now() < until) {
      if (MPI_Testall(static_cast<int>(last.size()), last.data(), &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
      if (!all) std::this_thread::sleep_for(kLongestNap);
    }
  }

  std::shared_ptr<Arrivals> arrivals_;
  std::shared_ptr<MpiSession> session_;
  Communicator data_, control_;
  int rank_ = 0, size_ = 0;
  int tags_ = 0;  // tags of payloads used so far
  cluster::Cluster cluster_;

  std::mutex mutex_;
  std::condition_variable news_, quiet_;
  std::vector<Message*> inbox_;
  std::string reason_;
  bool closing_ = false, stopping_ = false, quiesced_ = false, informed_ = false;

  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::map<Flight*, std::unique_ptr<Flight>> flights_;
  std::vector<Peer> peers_;
  Clock::time_point last_move_ = Clock::now();
  std::array<char, kReasonBytes> heard_{}, said_{};
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  WorkSigns signs_;
  char heard_sign_ = 0;
  const char said_sign_ = 0;
  MPI_Request hearing_sign_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> said_signs_;
  std::thread progress_;
};

}  // namespace

MpiSession::MpiSession() {
  int level = 0;
  must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_SERIALIZED)
    throw ClusterError("MPI: this library allows calls from the first thread only. Use one built with thread support.");
}

MpiSession::~MpiSession() {
  if (!unfinished_) MPI_Finalize();
}

std::unique_ptr<Fabric> mpi_fabric(FabricOptions options, const std::string& host, std::shared_ptr<MpiSession> session,
                                   int tags) {
  if (!session) session = std::make_shared<MpiSession>();
  auto arrivals = std::make_shared<Arrivals>();
  auto transport = std::make_unique<MpiTransport>(arrivals, session, host, tags, options.timeout);
  return std::make_unique<MessageFabric>(options, std::move(arrivals), std::move(transport));
}

}  // namespace switchyard::comm
