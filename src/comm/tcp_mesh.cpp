#include "comm/tcp_mesh.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/greeting.hpp"
#include "comm/host_names.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kRetry = 20ms;           // between attempts to reach a rank that does not listen yet
constexpr auto kPatience = 1s;          // with one of several addresses of rank 0
constexpr auto kGrace = 2s;             // rank 0 gives up first, and says why
constexpr auto kFarewell = 1s;          // to send the reason of a failure
constexpr size_t kMostStrangers = 256;  // connections that have not greeted, beyond one for each rank
constexpr int kMostRefusalsSaid = 16;   // a port scan must not fill the log

// Where a rank accepts data connections. Address 0: the one at which the others reached rank 0.
struct Place {
  in_addr address{};
  std::int32_t port = 0;
  HostId host{};
};

// Sent by rank 0 to all ranks once they have joined, followed by their places; or the reason why it ended.
struct Roster {
  std::int32_t complete = 0;
  std::array<char, 252> reason{};
  Digest session{};
};

template <class T>
T read_as(const std::vector<std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// A connection and the message that it awaits. It never reads beyond that message, because after the greeting the
// socket belongs to the fabric.
struct Contact {
  enum class Step {
    connecting,
    challenge,
    verdict,  // on a connection that this rank makes
    hello,    // on one that it accepts: a stranger until then
    roster,
    joined,
    leaving,  // refused: closed when all is sent
    gone,
  };
  Descriptor socket;
  Endpoint remote;
  Phase phase = Phase::join;
  Step step = Step::hello;
  int rank = -1;  // the peer's, where it is known
  Challenge challenge;
  Hello hello;
  size_t awaited = 0;
  std::vector<std::byte> in, out;
  Clock::time_point retry_at{};
  std::string trouble = {};

  void say(std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
  template <class T>
  void say_object(const T& object) {
    say(std::as_bytes(std::span(&object, 1)));
  }
  void await(Step next, size_t bytes) {
    step = next;
    awaited = bytes;
    in.clear();
  }
};

using Step = Contact::Step;

class Rendezvous {
 public:
  Rendezvous(const Launch& launch, const FabricOptions& options)
      : launch_(launch),
        options_(options),
        key_(key_of(options.token)),
        host_(own_host(launch.host)),
        deadline_(Clock::now() + options.timeout) {
    places_.resize(static_cast<size_t>(launch.size));
    joined_.resize(places_.size());
    left_.resize(places_.size());
    allow_all_files();  // a socket to each rank
    find_own_interface();
    find_master();
  }

  Mesh meet() {
    if (launch_.rank == 0)
      gather();
    else
      join();
    connect_all();
    Mesh mesh;
    mesh.sockets.resize(places_.size());
    for (const auto& contact : contacts_)
      if (contact->phase == Phase::data && contact->step == Step::joined)
        mesh.sockets[static_cast<size_t>(contact->rank)] = std::move(contact->socket);
    std::vector<HostId> hosts;
    for (const Place& place : places_) hosts.push_back(place.host);
    mesh.cluster = cluster_of_hosts(hosts);
    return mesh;
  }

 private:
  // ---- messages ----

  [[noreturn]] void fail(const std::string& what) const {
    cluster_error("rank {}: joining {} ranks at {}:{}: {}", launch_.rank, launch_.size, launch_.master_address,
                  launch_.master_port, what);
  }

  [[noreturn]] void fail_late() const {
    const std::string seconds = fmt::format("{:g} s", std::chrono::duration<double>(options_.timeout).count());
    std::string what;
    for (const auto& contact : contacts_) {
      const std::string whom = fmt::format("rank {} ({})", contact->rank, text_of(contact->remote));
      if (contact->step == Step::connecting)
        what = fmt::format("no connection to {} for {}{}", whom, seconds,
                           contact->trouble.empty() ? "" : ", last: " + contact->trouble);
      if (contact->step == Step::challenge || contact->step == Step::verdict)
        what = fmt::format("{} took the connection, but did not answer for {}. Something else may listen there", whom,
                           seconds);
      if (contact->step == Step::roster)
        what = fmt::format("{} did not send the addresses of the others for {}", whom, seconds);
    }
    const std::string missing = missing_ranks();
    if (what.empty()) what = fmt::format("heard nothing from {} for {}", missing, seconds);
    if (!last_refusal_.empty()) what += fmt::format(" (refused meanwhile: {})", last_refusal_);
    const bool on_purpose = launch_.master_address == "localhost" || launch_.master_address.starts_with("127.");
    if (launch_.rank == 0 && is_loopback(master_.address) && !on_purpose)
      what += fmt::format(" (this rank listens on {}, which only its own host reaches)", text_of(master_.address));
    fail(fmt::format("{}. See the logs of the other ranks, or raise fabric.timeout.", what));
  }

  // "rank 2", "ranks 1, 3 and 12 others".
  std::string missing_ranks() const {
    constexpr size_t kNamed = 8;
    std::vector<std::string> names;
    size_t more = 0;
    for (int r = 0; r < launch_.size; ++r) {
      if (r == launch_.rank || joined_[static_cast<size_t>(r)]) continue;
      if (names.size() == kNamed)
        ++more;
      else
        names.push_back(fmt::format("{}{}", r, left_[static_cast<size_t>(r)] ? " (it had joined, and left)" : ""));
    }
    return fmt::format("rank{} {}{}", names.size() == 1 ? "" : "s", fmt::join(names, ", "),
                       more == 0 ? "" : fmt::format(" and {} others", more));
  }

  void refused(const Contact& contact, const std::string& why) {
    last_refusal_ = fmt::format("{}: {}", text_of(contact.remote), why);
    ++refusals_;
    if (!options_.say || refusals_ > kMostRefusalsSaid) return;
    options_.say(fmt::format("rank {}: refused the connection from {}{}", launch_.rank, last_refusal_,
                             refusals_ == kMostRefusalsSaid ? " (no more of them are reported)" : ""));
  }

  // ---- addresses ----

  void find_own_interface() {
    if (options_.interface.empty()) return;
    const std::vector<Interface> all = interfaces();
    const auto found = find_interface(options_.interface, all);
    if (!found)
      user_error(
          "fabric.interface = \"{}\" is not an interface of this host, which has {}. Name one of them, or a network "
          "such as "
          "\"10.0.0.0/8\".",
          options_.interface, text_of(all));
    interface_ = *found;
  }

  void find_master() {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    const int code = ::getaddrinfo(launch_.master_address.c_str(), nullptr, &hints, &found);
    if (code != 0)
      fail(
          fmt::format("MASTER_ADDR can't be resolved to an IPv4 address: {}. Set it to the name or address of the host "
                      "of rank 0.",
                      ::gai_strerror(code)));
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      in_addr address = reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr;
      // Many hosts resolve their own name to a loopback address; then rank 0 is on this host.
      if (interface_.s_addr != 0 && is_loopback(address)) address = interface_;
      if (std::ranges::none_of(masters_, [&](in_addr known) { return known.s_addr == address.s_addr; }))
        masters_.push_back(address);
    }
    ::freeaddrinfo(found);
    std::stable_partition(masters_.begin(), masters_.end(), [](in_addr address) { return !is_loopback(address); });
    master_ = {masters_.front(), launch_.master_port};
  }

  // A host may have several addresses, which not all are on a network of the others: rank 0 listens on the first that
  // is its own, and the others try one after the other.
  void next_master(Contact& contact) {
    const auto now = std::ranges::find(masters_, contact.remote.address.s_addr, &in_addr::s_addr);
    contact.remote.address = std::next(now) == masters_.end() ? masters_.front() : *std::next(now);
  }

  Descriptor listen(const Endpoint& at) const {
    Opened opened = listen_on(at);
    if (opened.error == 0) return std::move(opened.socket);
    if (opened.error == EADDRNOTAVAIL)
      user_error(
          "MASTER_ADDR = {} is not an address of rank 0's host, which has {}. Start rank 0 there, or set "
          "fabric.interface.",
          launch_.master_address, text_of(interfaces()));
    fail(fmt::format("can't listen on {}: {}. Choose another MASTER_PORT.", text_of(at), std::strerror(opened.error)));
  }

  // If the master's address is not one of this host's own, rank 0 listens on the interface that the options name.
  Descriptor listen_as_master() {
    const auto own = std::ranges::find_if(masters_, [](in_addr address) {
      return listen_on({address, 0}).error != EADDRNOTAVAIL;
    });
    if (own != masters_.end()) master_.address = *own;
    if (interface_.s_addr != 0 && listen_on({master_.address, 0}).error == EADDRNOTAVAIL)
      return listen({interface_, master_.port});
    return listen(master_);
  }

  // ---- the two phases ----

  // Rank 0 collects the hellos of all others, and sends all places to each of them.
  void gather() {
    listener_ = listen_as_master();
    try {
      until([this] { return missing() == 0; });
    } catch (const std::exception& error) {
      tell_all(Roster{.complete = 0, .reason = refusing(error.what()).reason}, {});
      end_by(Clock::now() + kFarewell);
      throw;
    }
    if (interface_.s_addr != 0 && !(interface_.s_addr == local_end(listener_).address.s_addr)) {
      data_listener_ = listen({interface_, 0});
      places_[0].address = interface_;
    }
    places_[0].port = local_end(data_listener_.fd() >= 0 ? data_listener_ : listener_).port;
    places_[0].host = host_;
    const Digest session = random_digest();
    tell_all(Roster{.complete = 1, .session = session}, std::as_bytes(std::span(places_)));
    begin_data_phase(session);
  }

  void tell_all(const Roster& roster, std::span<const std::byte> places) {
    for (const auto& contact : contacts_) {
      if (contact->step != Step::joined) continue;
      contact->say_object(roster);
      contact->say(places);
    }
  }

  void join() {
    call(0, master_, Phase::join);
    until([this] { return phase_ == Phase::data; });
  }

  void begin_data_phase(const Digest& session) {
    session_key_ = data_key(key_, session);
    phase_ = Phase::data;
    deadline_ = Clock::now() + options_.timeout;
    joined_.assign(places_.size(), false);
  }

  // Connects pairwise, all at once: to the ranks below, and from those above.
  void connect_all() {
    for (int r = 0; r < launch_.rank; ++r) {
      const Place& place = places_[static_cast<size_t>(r)];
      call(r, {place.address.s_addr != 0 ? place.address : master_.address, place.port}, Phase::data);
    }
    until([this] { return missing() == 0; });
  }

  int missing() const {
    int missing = launch_.size - 1 - static_cast<int>(std::ranges::count(joined_, true));
    for (const auto& contact : contacts_) missing += contact->step == Step::joined && !contact->out.empty();
    return missing;
  }

  void call(int rank, const Endpoint& to, Phase phase) {
    auto contact = std::make_unique<Contact>();
    contact->rank = rank;
    contact->remote = to;
    contact->phase = phase;
    contact->step = Step::connecting;
    contacts_.push_back(std::move(contact));
    connect(*contacts_.back());
  }

  // ---- the loop ----

  template <class Done>
  void until(Done done) {
    while (!done()) {
      if (Clock::now() >= deadline_) fail_late();
      turn(deadline_);
    }
  }

  // Sends pending bytes to ranks that have joined, until `end` at most.
  void end_by(Clock::time_point end) {
    const auto unsent = [](const auto& contact) { return contact->step == Step::joined && !contact->out.empty(); };
    while (Clock::now() < end && std::ranges::any_of(contacts_, unsent)) turn(end);
  }

  void turn(Clock::time_point end) {
    std::vector<pollfd> entries;
    for (const Descriptor* listener :
         {&listener_, &data_listener_})  // other connections wait in its queue until this rank knows the session
      if (listener->fd() >= 0 && (launch_.rank == 0 || phase_ == Phase::data))
        entries.push_back({listener->fd(), POLLIN, 0});
    const size_t listeners = entries.size(), contacts = contacts_.size();
    for (const auto& contact : contacts_) {
      if (contact->socket.fd() < 0 || tries_others(*contact)) end = std::min(end, contact->retry_at);
      const bool writes = contact->step == Step::connecting || !contact->out.empty();
      const int events = (writes ? POLLOUT : 0) | (contact->awaited > 0 ? POLLIN : POLLRDHUP);
      entries.push_back({contact->socket.fd(), static_cast<short>(events), 0});  // poll ignores -1
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::max<i64>(left, 0))) < 0 && errno != EINTR)
      fail(fmt::format("poll failed: {}", std::strerror(errno)));
    for (size_t i = 0; i < listeners; ++i)
      if (entries[i].revents != 0) accept_from(entries[i].fd);
    for (size_t i = 0; i < contacts; ++i) serve(*contacts_[i], entries[listeners + i].revents);
    std::erase_if(contacts_, [](const auto& contact) { return contact->step == Step::gone; });
  }

  void serve(Contact& contact, short events) {
    if (contact.step == Step::gone) return;
    if (contact.step == Step::connecting) {
      if (contact.socket.fd() < 0 && Clock::now() >= contact.retry_at)
        connect(contact);
      else if (events != 0)
        finish_connecting(contact);
      else if (tries_others(contact) && Clock::now() >= contact.retry_at)
        try_later(contact, std::strerror(ETIMEDOUT));
      return;
    }
    if (events & POLLOUT) write(contact);
    if (contact.step == Step::gone || (events & ~POLLOUT) == 0) return;
    if (contact.awaited > 0)
      read(contact);
    else
      lose(contact, "it closed the connection");
  }

  bool tries_others(const Contact& contact) const {
    return contact.step == Step::connecting && contact.phase == Phase::join && masters_.size() > 1;
  }

  void accept_from(int listener) {
    for (;;) {
      auto contact = std::make_unique<Contact>();
      contact->socket = Descriptor(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (contact->socket.fd() < 0) {
        const int error = errno;  // there was no connection, or the error was the connection's
        if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
        if (!drop_oldest_stranger())
          fail(fmt::format("can't take connections: {}. Raise the limit of open files.", std::strerror(error)));
        return;
      }
      tune(contact->socket);
      contact->remote = remote_end(contact->socket);
      contact->challenge = make_challenge();
      contact->say_object(contact->challenge);
      contact->await(Step::hello, sizeof(Hello));
      contacts_.push_back(std::move(contact));
      const auto strangers = std::ranges::count_if(contacts_, [](const auto& c) { return c->step == Step::hello; });
      if (static_cast<size_t>(strangers) > kMostStrangers + places_.size()) drop_oldest_stranger();
    }
  }

  bool drop_oldest_stranger() {
    const auto oldest =
        std::ranges::find_if(contacts_, [](const auto& contact) { return contact->step == Step::hello; });
    if (oldest == contacts_.end()) return false;
    lose(**oldest, "too many connections wait, and it said nothing");
    return true;
  }

  void connect(Contact& contact) {
    Opened opened = start_connecting(contact.remote, interface_);
    contact.socket = std::move(opened.socket);
    contact.retry_at = Clock::now() + kPatience;
    if (opened.error != 0) try_later(contact, std::strerror(opened.error));
  }

  // Rank 0 may not have started yet. Any other rank listened already when it sent its address, so it must have ended.
  void try_later(Contact& contact, const std::string& trouble) {
    if (contact.phase == Phase::data)
      fail(fmt::format("no connection to rank {} ({}): {}. See its log.", contact.rank, text_of(contact.remote),
                       trouble));
    next_master(contact);
    contact.socket = Descriptor();
    contact.step = Step::connecting;
    contact.awaited = 0;
    contact.trouble = trouble;
    contact.retry_at = Clock::now() + kRetry;
  }

  void finish_connecting(Contact& contact) {
    if (const int error = connect_error(contact.socket)) return try_later(contact, std::strerror(error));
    contact.await(Step::challenge, sizeof(Challenge));
  }

  void write(Contact& contact) {
    while (!contact.out.empty()) {
      const ssize_t n = ::send(contact.socket.fd(), contact.out.data(), contact.out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0) return lose(contact, std::strerror(errno));
      contact.out.erase(contact.out.begin(), contact.out.begin() + n);
    }
    if (contact.step == Step::leaving) contact.step = Step::gone;
  }

  void read(Contact& contact) {
    const size_t had = contact.in.size();
    contact.in.resize(contact.awaited);
    const ssize_t n = ::recv(contact.socket.fd(), contact.in.data() + had, contact.awaited - had, 0);
    const int error = errno;
    contact.in.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) return;
    if (n <= 0) return lose(contact, n == 0 ? "it closed the connection" : std::strerror(error));
    const bool greets = contact.step == Step::challenge || contact.step == Step::hello;
    if (greets && std::memcmp(contact.in.data(), kMagic.data(), std::min(contact.in.size(), kMagic.size())) != 0) {
      if (contact.step == Step::hello) return lose(contact, "not a rank of this version of Switchyard");
      fail(fmt::format("the listener on {} is not rank {} of this version of Switchyard. Choose another MASTER_PORT.",
                       text_of(contact.remote), contact.rank));
    }
    if (contact.in.size() == contact.awaited) take(contact);
  }

  void take(Contact& contact) {
    switch (contact.step) {
      case Step::challenge:
        return greet(contact);
      case Step::hello:
        return judge(contact);
      case Step::verdict:
        return accept_verdict(contact);
      case Step::roster:
        return take_roster(contact);
      default:
        check(false, "rank {}: bytes of a connection that awaits none", launch_.rank);
    }
  }

  const Digest& key_for(Phase phase) const { return phase == Phase::join ? key_ : session_key_; }

  void greet(Contact& contact) {
    if (contact.phase == Phase::join) data_listener_ = listen({local_end(contact.socket).address, 0});
    Hello& hello = contact.hello = {};
    hello.phase = contact.phase;
    hello.rank = launch_.rank, hello.size = launch_.size;
    hello.address = interface_;
    hello.port = data_listener_.fd() >= 0 ? local_end(data_listener_).port : 0;
    hello.host = host_;
    prove(hello, key_for(contact.phase), read_as<Challenge>(contact.in));
    contact.say_object(hello);
    contact.await(Step::verdict, sizeof(Verdict));
  }

  // Why a peer is refused, worded for this rank's log and for the peer. Nothing if it is accepted.
  struct Objection {
    std::string here, there;
  };
  std::optional<Objection> objection(const Contact& contact) const {
    const Hello& hello = contact.hello;
    if (hello.phase == Phase::join && launch_.rank != 0)
      return Objection{"it takes this rank for rank 0", "this is not rank 0"};
    if (hello.phase != Phase::join && phase_ == Phase::join)
      return Objection{"it has not joined", "this rank has not joined"};
    if (!is_proved(hello, key_for(hello.phase), contact.challenge))
      return Objection{"it has a different fabric.token, or belongs to another run",
                       "fabric.token (or torchrun's run id) differs between here and there. Give all ranks the same"};
    const std::string label = fmt::format("RANK {} on host {}", hello.rank, text_of(hello.host));
    if (hello.size != launch_.size)
      return Objection{
          fmt::format("{} was started for WORLD_SIZE {}, this rank for {}", label, hello.size, launch_.size),
          fmt::format("WORLD_SIZE is {} here and {} there. Give all ranks the same", hello.size, launch_.size)};
    const int lowest = launch_.rank + 1;
    if (hello.rank < lowest || hello.rank >= launch_.size)
      return Objection{
          fmt::format("{} is not one of the ranks that it awaits, {} to {}", label, lowest, launch_.size - 1),
          fmt::format("RANK {} is not one of the ranks that it awaits, {} to {}", hello.rank, lowest,
                      launch_.size - 1)};
    const auto rank = static_cast<size_t>(hello.rank);
    if (hello.phase != phase_ || joined_[rank])
      return Objection{
          fmt::format("{} has joined already, from host {}", label, text_of(places_[rank].host)),
          fmt::format("RANK {} has joined already, from host {}. Each process needs a rank of its own, from 0 to {}",
                      hello.rank, text_of(places_[rank].host), launch_.size - 1)};
    return std::nullopt;
  }

  void judge(Contact& contact) {
    contact.hello = read_as<Hello>(contact.in);
    if (const auto objection = this->objection(contact)) {
      refused(contact, objection->here + ".");
      contact.say_object(refusing(objection->there));
      contact.await(Step::leaving, 0);
      return write(contact);
    }
    const auto rank = static_cast<size_t>(contact.hello.rank);
    contact.rank = contact.hello.rank;
    contact.phase = contact.hello.phase;
    contact.say_object(accepting(key_for(contact.phase), contact.hello));
    contact.await(Step::joined, 0);
    joined_[rank] = true;
    if (contact.phase == Phase::data) return;
    const in_addr address = contact.hello.address.s_addr != 0 ? contact.hello.address : contact.remote.address;
    places_[rank] = {address, contact.hello.port, contact.hello.host};
  }

  void accept_verdict(Contact& contact) {
    const auto verdict = read_as<Verdict>(contact.in);
    const std::string whom = fmt::format("rank {} ({})", contact.rank, text_of(contact.remote));
    if (verdict.accepted == 0) fail(fmt::format("{} refused this rank: {}.", whom, text_of(verdict.reason)));
    if (!is_proved(verdict, key_for(contact.phase), contact.hello))
      fail(fmt::format("the listener on {} does not know this job's fabric.token. Choose another MASTER_PORT.",
                       text_of(contact.remote)));
    if (contact.phase == Phase::join) {
      master_.address = contact.remote.address;
      deadline_ = Clock::now() + options_.timeout + kGrace;
      return contact.await(Step::roster, sizeof(Roster));
    }
    contact.await(Step::joined, 0);
    joined_[static_cast<size_t>(contact.rank)] = true;
  }

  // Reads the head first, which may say that rank 0 has ended, then the rest.
  void take_roster(Contact& contact) {
    const auto roster = read_as<Roster>(contact.in);
    if (roster.complete == 0) fail(fmt::format("stopped by rank 0: {}", text_of(roster.reason)));
    const size_t whole = sizeof(Roster) + places_.size() * sizeof(Place);
    if (contact.awaited < whole) {
      contact.awaited = whole;
      return;
    }
    std::memcpy(places_.data(), contact.in.data() + sizeof(Roster), places_.size() * sizeof(Place));
    contact.await(Step::gone, 0);
    begin_data_phase(roster.session);
  }

  void lose(Contact& contact, const std::string& how) {
    const Step was = std::exchange(contact.step, Step::gone);
    if (was == Step::challenge) return try_later(contact, how);
    if (was == Step::verdict || was == Step::roster || contact.phase == Phase::data)
      fail(fmt::format("lost rank {} ({}): {}. See its log.", contact.rank, text_of(contact.remote), how));
    if (was == Step::hello) return refused(contact, how + ".");
    if (was != Step::joined || phase_ == Phase::data) return;  // it has received the roster
    const auto rank = static_cast<size_t>(contact.rank);
    joined_[rank] = false;
    left_[rank] = true;
    if (options_.say)
      options_.say(fmt::format("rank 0: rank {} on host {} left before all had joined: {}.", rank,
                               text_of(places_[rank].host), how));
  }

  const Launch& launch_;
  const FabricOptions& options_;
  const Digest key_;
  const HostId host_;
  Digest session_key_{};
  Clock::time_point deadline_;
  Phase phase_ = Phase::join;
  in_addr interface_{};           // this host's address on the interface in the options; 0: none is given
  std::vector<in_addr> masters_;  // addresses of the master's name
  Endpoint master_;
  Descriptor listener_,
      data_listener_;  // only on ranks other than 0, and on rank 0 if its data has an interface of its own
  std::deque<std::unique_ptr<Contact>> contacts_;
  std::vector<bool> joined_, left_;  // per rank, in this phase
  std::vector<Place> places_;
  std::string last_refusal_;
  int refusals_ = 0;
};

}  // namespace

Mesh tcp_mesh(const Launch& launch, const FabricOptions& options) { return Rendezvous(launch, options).meet(); }

}  // namespace switchyard::comm
