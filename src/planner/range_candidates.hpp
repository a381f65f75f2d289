// The candidates of one range of lengths, in parts on which threads work side by side.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "planner/range_queue.hpp"

namespace switchyard::planner {

/// Options of all parts have numbers, in the order in which list() found them.
class RangeCandidates {
 public:
  /// With any number of threads, so that this number changes nothing that is found.
  static constexpr int kParts = 16;

  /// placements: as ShapeIndex has it.
  RangeCandidates(std::vector<std::unique_ptr<RangeQueue>> parts, int placements);

  RangeQueue& part(size_t number) { return *parts_[number]; }
  /// Makes the options that parts have found since the last call known here.
  void list();

  // The same as RangeQueue has, of all parts.
  double least() const;
  double least_of_options() const;
  double least_of_all() const { return std::min(least(), least_of_options()); }
  double quickest() const;
  /// Looks at no more than so many entries of each part.
  bool open(double most, size_t entries);
  void time(size_t option);
  void count_rest(double enough = 0) const;
  size_t timed() const;

  size_t size() const { return options_.size(); }
  const Option& option(size_t number) const {
    const auto [part, option] = options_[number];
    return parts_[part]->options()[option];
  }
  /// Numbers of placements are less.
  int placements() const { return placements_; }

 private:
  std::vector<std::unique_ptr<RangeQueue>> parts_;
  std::vector<size_t> listed_;                      // options of each part
  std::vector<std::pair<size_t, size_t>> options_;  // part, and number there
  int placements_;
};

}  // namespace switchyard::planner
