#include "ordering.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace switchyard::standin {
namespace {

constexpr std::size_t kGranule = 4;  // bytes that are read or written together

void merge(Clock& to, const Clock& from) {
  to.resize(std::max(to.size(), from.size()));
  for (std::size_t s = 0; s < from.size(); ++s) to[s] = std::max(to[s], from[s]);
}

bool covers(const Clock& clock, const Clock& mark) {
  for (std::size_t s = 0; s < mark.size(); ++s)
    if (mark[s] > (s < clock.size() ? clock[s] : 0)) return false;
  return true;
}

std::uint64_t at(const Clock& clock, int stream) {
  const auto s = static_cast<std::size_t>(stream);
  return s < clock.size() ? clock[s] : 0;
}

}  // namespace

Ordering::Ordering(std::size_t capacity) : cells_bytes_(capacity / kGranule * sizeof(Cell)) {
  void* cells = mmap(nullptr, cells_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) throw std::runtime_error("stand-in device: no address range for its history");
  cells_ = static_cast<Cell*>(cells);
}

Ordering::~Ordering() { munmap(cells_, cells_bytes_); }

int Ordering::new_stream() {
  const std::lock_guard lock(mutex_);
  clocks_.emplace_back();
  return static_cast<int>(clocks_.size()) - 1;
}

template <class Visit>
void Ordering::each_cell(const std::vector<Region>& regions, const Visit& visit) {
  for (const Region& region : regions)
    for (const std::size_t begin : region.begins)
      for (std::size_t c = begin / kGranule; c < (begin + region.bytes + kGranule - 1) / kGranule; ++c)
        visit(cells_[c]);
}

bool Ordering::known(int stream, const Work& work) const {
  return work.stream == stream || at(clocks_[static_cast<std::size_t>(stream)], work.stream) >= work.number ||
         at(host_, work.stream) >= work.number;
}

void Ordering::check_order(int stream, const std::string& name, bool writes, const Work& before, bool wrote) const {
  if (known(stream, before)) return;
  throw std::logic_error("stand-in device: " + name + " on stream " + std::to_string(stream) +
                         (writes ? " writes" : " reads") + " what " + *before.name + " on stream " +
                         std::to_string(before.stream) + (wrote ? " may not have written yet" : " may still read"));
}

const std::string* Ordering::interned(const std::string& name) {
  std::string*& found = names_[name];
  if (!found) found = new std::string(name);  // kept as long as the process
  return found;
}

void Ordering::work(int stream, const std::string& name, const std::vector<Region>& reads,
                    const std::vector<Region>& writes) {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) throw std::logic_error(std::exchange(fault_, {}));
  merge(clocks_[static_cast<std::size_t>(stream)], host_);
  Clock& own = clocks_[static_cast<std::size_t>(stream)];
  own.resize(std::max(own.size(), static_cast<std::size_t>(stream) + 1));
  std::uint32_t last_write = 0, last_reads = 0;  // what was found to come before
  const auto after_write = [&](const Cell& cell, bool writing) {
    if (cell.write == 0 || cell.write == last_write) return;
    check_order(stream, name, writing, works_[cell.write], true);
    last_write = cell.write;
  };
  each_cell(reads, [&](const Cell& cell) { after_write(cell, false); });
  each_cell(writes, [&](const Cell& cell) {
    after_write(cell, true);
    if (cell.reads == 0 || cell.reads == last_reads) return;
    for (const std::uint32_t read : read_sets_[cell.reads]) check_order(stream, name, true, works_[read], false);
    last_reads = cell.reads;
  });
  const auto id = static_cast<std::uint32_t>(works_.size());
  works_.push_back({stream, ++own[static_cast<std::size_t>(stream)], interned(name)});
  std::unordered_map<std::uint32_t, std::uint32_t> sets;  // with this work in place of those that it follows
  const auto with_this = [&](std::uint32_t before) {
    std::uint32_t& set = sets[before];
    if (set != 0) return set;
    std::vector<std::uint32_t> now{id};
    for (const std::uint32_t read : read_sets_[before])
      if (!known(stream, works_[read])) now.push_back(read);
    set = static_cast<std::uint32_t>(read_sets_.size());
    read_sets_.push_back(std::move(now));
    return sets[set] = set;  // for bytes that the work reads twice
  };
  std::uint32_t before = 0, now = with_this(0);  // those of the last cell: neighbours are mostly equal
  each_cell(reads, [&](Cell& cell) {
    if (cell.reads != before) {
      before = cell.reads;
      now = with_this(before);
    }
    cell.reads = now;
  });
  each_cell(writes, [&](Cell& cell) { cell = {.write = id, .reads = 0}; });
}

void Ordering::free(int stream, const std::vector<int>& users, const Region& memory) {
  const std::lock_guard lock(mutex_);
  const auto look = [&](std::uint32_t id, const char* what) {
    const Work& work = works_[id];
    if (id == 0 || !fault_.empty() || known(stream, work) ||
        std::ranges::any_of(users, [&](int user) { return known(user, work); }))
      return;
    fault_ = "stand-in device: memory of stream " + std::to_string(stream) + " is freed, which " + *work.name +
             " on stream " + std::to_string(work.stream) + " may still " + what;
  };
  std::uint32_t last_write = 0, last_reads = 0;
  each_cell({memory}, [&](const Cell& cell) {
    if (cell.write != last_write) look(last_write = cell.write, "write");
    if (cell.reads == last_reads) return;
    last_reads = cell.reads;
    for (const std::uint32_t read : read_sets_[cell.reads]) look(read, "read");
  });
}

void Ordering::forget() {
  const std::lock_guard lock(mutex_);
  madvise(cells_, cells_bytes_, MADV_DONTNEED);  // they are zeros from now on
  works_.resize(1);
  read_sets_.resize(1);
}

std::string Ordering::take_fault() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fault_, {});
}

Clock Ordering::mark(int stream) const {
  const std::lock_guard lock(mutex_);
  return clocks_[static_cast<std::size_t>(stream)];
}

void Ordering::wait_for(int stream, const Clock& mark) {
  const std::lock_guard lock(mutex_);
  merge(clocks_[static_cast<std::size_t>(stream)], mark);
}

void Ordering::host_waits_for(const Clock& mark) {
  const std::lock_guard lock(mutex_);
  merge(host_, mark);
}

Clock Ordering::mark_of_all() const {
  const std::lock_guard lock(mutex_);
  Clock all;
  for (const Clock& clock : clocks_) merge(all, clock);
  return all;
}

bool Ordering::follows(int stream, const Clock& mark) const {
  const std::lock_guard lock(mutex_);
  Clock known = clocks_[static_cast<std::size_t>(stream)];
  merge(known, host_);
  return covers(known, mark);
}

bool Ordering::host_knows(const Clock& mark) const {
  const std::lock_guard lock(mutex_);
  return covers(host_, mark);
}

}  // namespace switchyard::standin
