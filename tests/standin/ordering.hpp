// What the streams of a device have in order, and which of their work could run at the same time on the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace switchyard::standin {

/// For each stream, by number, how much of its work is known to be done.
using Clock = std::vector<std::uint64_t>;

/// Bytes that some work reads or writes: `bytes` at each of `begins`, offsets in the device's memory.
struct Region {
  std::vector<std::size_t> begins;
  std::size_t bytes = 0;
};

/// Work of a stream follows the stream's earlier work, that of other streams before a mark that the stream waits for,
/// and what the host has waited for. Work that is not ordered so may run at the same time: if two touch a byte and one
/// writes it, the later one is refused. So a missing mark is found by the first run, whatever the timing. Thread-safe.
class Ordering {
 public:
  /// The order of accesses to a memory of so many bytes.
  explicit Ordering(std::size_t capacity);
  ~Ordering();
  Ordering(const Ordering&) = delete;
  Ordering& operator=(const Ordering&) = delete;

  int new_stream();
  /// The stream's next work. std::logic_error, with both, if it may run beside earlier work that it must follow.
  void work(int stream, const std::string& name, const std::vector<Region>& reads, const std::vector<Region>& writes);
  /// Memory is freed that a stream may use again once it follows what `users` have been given. If it is still used
  /// beside that, the next work of any stream, or take_fault, tells.
  void free(int stream, const std::vector<int>& users, const Region& memory);
  /// All that was done is over: it needs no record.
  void forget();
  /// What free found since the last call; empty: nothing.
  std::string take_fault();
  /// What the stream has been given, and what that follows.
  Clock mark(int stream) const;
  /// The stream's next work follows the mark.
  void wait_for(int stream, const Clock& mark);
  /// The host waits for the mark: all later work follows it.
  void host_waits_for(const Clock& mark);
  /// What has been given to any stream.
  Clock mark_of_all() const;
  /// Whether what the stream is given next follows the mark.
  bool follows(int stream, const Clock& mark) const;
  /// Whether the host knows that the mark is reached.
  bool host_knows(const Clock& mark) const;

 private:
  struct Work {
    int stream = 0;
    std::uint64_t number = 0;
    const std::string* name = nullptr;
  };
  /// The last write of a granule of bytes, and the reads since: numbers in works_ and read_sets_; 0: none.
  struct Cell {
    std::uint32_t write, reads;
  };
  bool known(int stream, const Work& work) const;
  void check_order(int stream, const std::string& name, bool writes, const Work& before, bool wrote) const;
  const std::string* interned(const std::string& name);
  template <class Visit>
  void each_cell(const std::vector<Region>& regions, const Visit& visit);

  mutable std::mutex mutex_;
  std::size_t cells_bytes_;
  Cell* cells_;
  std::vector<Clock> clocks_;  // by stream: what its next work follows; its own entry is what it has been given
  Clock host_;
  std::vector<Work> works_{1};
  std::vector<std::vector<std::uint32_t>> read_sets_{1};
  std::unordered_map<std::string, std::string*> names_;
  std::string fault_;
};

}  // namespace switchyard::standin
