#include "comm/mpi_fabric.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "comm/host_names.hpp"
#include "comm/message_fabric.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr i64 kPieceBytes = i64{1} << 30;  // MPI counts in int
constexpr size_t kReasonBytes = 1024;      // of an abort message
constexpr int kReasonTag = 1;
constexpr std::chrono::microseconds kShortestNap = 5us, kLongestNap = 200us, kIdleNap = 5ms;

void must(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  cluster_error("MPI: {} failed: {}. See the logs of the other ranks.", call, std::string(text, static_cast<size_t>(length)));
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

// A parcel in MPI's hands, and how many of its requests are open.
struct Flight {
  Parcel* parcel;
  int open = 0;
};

// Parcels of one peer and channel: the envelope of the first is awaited; its payload is received only once the envelope
// has proved to be the expected one.
struct Lane {
  std::deque<Parcel*> waiting;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<Arrivals> arrivals, std::shared_ptr<MpiSession> session, const std::string& host)
      : arrivals_(std::move(arrivals)), session_(std::move(session)) {
    must(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
    must(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
    void* bound = nullptr;
    int known = 0;
    must(MPI_Comm_get_attr(data_, MPI_TAG_UB, &bound, &known), "MPI_Comm_get_attr");
    if (known) highest_tag_ = *static_cast<int*>(bound);
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

  void post(std::span<Parcel* const> parcels) override {
    for (const Parcel* parcel : parcels)
      check(parcel->channel >= 0 && parcel->channel <= highest_tag_, "channel {} is no MPI tag: 0 to {}", parcel->channel, highest_tag_);
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    inbox_.insert(inbox_.end(), parcels.begin(), parcels.end());
    news_.notify_all();
  }

  void stop(const std::string& reason) override {
    std::unique_lock lock(mutex_);
    if (!stopping_) reason_ = reason;
    stopping_ = true;
    news_.notify_all();
    quiet_.wait_for(lock, 5s, [this] { return quiesced_; });
  }

 private:
  void exchange_hosts(const std::string& host) {
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    must(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    if (!host.empty()) std::strncpy(name, host.c_str(), sizeof name - 1);
    std::vector<char> all(static_cast<size_t>(size_) * sizeof name);
    must(MPI_Allgather(name, sizeof name, MPI_BYTE, all.data(), sizeof name, MPI_BYTE, data_), "MPI_Allgather");
    std::vector<std::string> names;
    for (int r = 0; r < size_; ++r) names.emplace_back(all.data() + static_cast<size_t>(r) * sizeof name);
    cluster_ = cluster_of_names(names);
  }

  // ---- the progress thread: everything below runs on it alone ----

  void progress() {
    try {
      listen_for_reasons();
      while (take_news()) {
        const bool moved = poll();
        hear_reason();
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

  // Starts what was posted, after a nap as long as nothing moves; false when it is time to end.
  bool take_news() {
    std::vector<Parcel*> posted;
    {
      std::unique_lock lock(mutex_);
      const auto something = [this] { return closing_ || stopping_ || !inbox_.empty(); };
      if (!something()) news_.wait_for(lock, nap(), something);
      if (closing_ || stopping_) return false;
      posted.swap(inbox_);
    }
    for (Parcel* parcel : posted) {
      if (parcel->send) start_send(*parcel);
      else start_receive(*parcel);
    }
    if (!posted.empty()) last_move_ = Clock::now();
    return true;
  }

  // Short naps while data flows, longer ones the longer nothing came: many ranks may share few cores.
  std::chrono::microseconds nap() const {
    if (requests_.empty()) return kIdleNap;
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_move_) / 20;
    return std::clamp<std::chrono::microseconds>(idle, kShortestNap, kLongestNap);
  }

  void add_request(MPI_Request request, Flight* flight, bool envelope) {
    requests_.push_back(request);
    slots_.push_back({flight, envelope});
    ++flight->open;
  }

  void start_send(Parcel& parcel) {
    auto* flight = new_flight(parcel);
    MPI_Request request;
    must(MPI_Isend(&parcel.envelope, sizeof(Envelope), MPI_BYTE, parcel.peer, parcel.channel, data_, &request), "MPI_Isend");
    add_request(request, flight, false);
    for_each_piece(parcel, [&](std::byte* data, int bytes) {
      must(MPI_Isend(data, bytes, MPI_BYTE, parcel.peer, parcel.channel, data_, &request), "MPI_Isend");
      add_request(request, flight, false);
    });
  }

  void start_receive(Parcel& parcel) {
    Lane& lane = lanes_[{parcel.peer, parcel.channel}];
    lane.waiting.push_back(&parcel);
    if (lane.waiting.size() == 1) await_envelope(parcel);
  }

  void await_envelope(Parcel& parcel) {
    MPI_Request request;
    must(MPI_Irecv(&parcel.theirs, sizeof(Envelope), MPI_BYTE, parcel.peer, parcel.channel, data_, &request), "MPI_Irecv");
    add_request(request, new_flight(parcel), true);
  }

  void open_envelope(Flight* flight) {
    Parcel& parcel = *flight->parcel;
    if (parcel.theirs != parcel.envelope) return land(flight);  // the receiver says so and everything stops
    MPI_Request request;
    for_each_piece(parcel, [&](std::byte* data, int bytes) {
      must(MPI_Irecv(data, bytes, MPI_BYTE, parcel.peer, parcel.channel, data_, &request), "MPI_Irecv");
      add_request(request, flight, false);
    });
    Lane& lane = lanes_.at({parcel.peer, parcel.channel});
    lane.waiting.pop_front();
    if (!lane.waiting.empty()) await_envelope(*lane.waiting.front());
    if (flight->open == 0) land(flight);
  }

  template <class Visit>
  static void for_each_piece(const Parcel& parcel, Visit visit) {
    for (i64 at = 0; at < parcel.envelope.bytes; at += kPieceBytes)
      visit(parcel.data + at, static_cast<int>(std::min(kPieceBytes, parcel.envelope.bytes - at)));
  }

  Flight* new_flight(Parcel& parcel) {
    auto flight = std::make_unique<Flight>(Flight{&parcel});
    Flight* at = flight.get();
    flights_.emplace(at, std::move(flight));
    return at;
  }

  void land(Flight* flight) {
    arrivals_->finish(*flight->parcel);
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
    for (int i = 0; i < completed; ++i) ended.push_back(slots_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]);
    drop_completed();
    for (const Slot& slot : ended) {
      --slot.flight->open;
      if (slot.envelope) open_envelope(slot.flight);
      else if (slot.flight->open == 0) land(slot.flight);
    }
    return true;
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

  // ---- aborts ----

  void listen_for_reasons() {
    must(MPI_Irecv(heard_.data(), kReasonBytes, MPI_BYTE, MPI_ANY_SOURCE, kReasonTag, control_, &hearing_), "MPI_Irecv");
  }

  void hear_reason() {
    int came = 0;
    must(MPI_Test(&hearing_, &came, MPI_STATUS_IGNORE), "MPI_Test");
    if (!came) return;
    arrivals_->fail(heard_.data());
    std::lock_guard lock(mutex_);
    stopping_ = told_ = true;  // the rank that failed tells all itself
  }

  bool has_to_tell() {
    std::lock_guard lock(mutex_);
    reason_.copy(said_.data(), kReasonBytes - 1);
    return stopping_ && !told_;
  }

  // Passes the reason on, takes receives back, and never calls MPI again.
  void wind_down() {
    std::vector<MPI_Request> last;
    if (has_to_tell()) {
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        MPI_Request request;
        if (MPI_Isend(said_.data(), kReasonBytes, MPI_BYTE, peer, kReasonTag, control_, &request) == MPI_SUCCESS) last.push_back(request);
      }
    }
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (slots_[i].flight->parcel->send) continue;
      MPI_Cancel(&requests_[i]);
      last.push_back(requests_[i]);
    }
    if (hearing_ != MPI_REQUEST_NULL) {
      MPI_Cancel(&hearing_);
      last.push_back(hearing_);
    }
    const auto until = Clock::now() + 2s;
    int all = 0;
    while (!all && Clock::now() < until) {
      if (MPI_Testall(static_cast<int>(last.size()), last.data(), &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
      if (!all) std::this_thread::sleep_for(kLongestNap);
    }
  }

  struct Slot {
    Flight* flight;
    bool envelope;  // of a receive
  };

  std::shared_ptr<Arrivals> arrivals_;
  std::shared_ptr<MpiSession> session_;
  Communicator data_, control_;
  int rank_ = 0, size_ = 0, highest_tag_ = 32767;
  cluster::Cluster cluster_;

  std::mutex mutex_;
  std::condition_variable news_, quiet_;
  std::vector<Parcel*> inbox_;
  std::string reason_;
  bool closing_ = false, stopping_ = false, quiesced_ = false, told_ = false;

  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::map<Flight*, std::unique_ptr<Flight>> flights_;
  std::map<std::pair<int, int>, Lane> lanes_;
  Clock::time_point last_move_ = Clock::now();
  std::array<char, kReasonBytes> heard_{}, said_{};
  MPI_Request hearing_ = MPI_REQUEST_NULL;
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

std::unique_ptr<Fabric> mpi_fabric(FabricOptions options, const std::string& host, std::shared_ptr<MpiSession> session) {
  if (!session) session = std::make_shared<MpiSession>();
  auto arrivals = std::make_shared<Arrivals>();
  auto transport = std::make_unique<MpiTransport>(arrivals, session, host);
  return std::make_unique<MessageFabric>(options, std::move(arrivals), std::move(transport));
}

}  // namespace switchyard::comm
