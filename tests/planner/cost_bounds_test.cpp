#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/cost_model.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr unsigned kProblems = cases(40u, 2u);

double packed_layers(const CostModel& model, const Shape& shape, i64 capacity, Range range) {
  return model.packed_layers_bounds(shape, std::vector{&shape}, capacity, range).front();
}

// What is known of earlier limits helps later ones, and changes nothing.
TEST(CostBounds, times_up_to_a_limit_are_the_times_or_bounds_above_it) {
  int exact = 0, bounds = 0, waiting = 0;
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    SmallProblem p(seed);
    const Range range{static_cast<int>(seed % p.model.bounds().size()), static_cast<int>(p.model.bounds().size())};
    if (!p.model.any(range)) continue;
    for (Shape shape : p.shapes)
      for (const i64 capacity : capacities(p.model, range))
        for (bool more = true; more;) {
          const std::string text = fmt::format("seed {}, {}, {} tokens", seed, to_string(shape), capacity);
          const double seconds = p.model.seconds(shape, capacity, range);
          CostModel::ReplicaTimes known;
          for (const double share : {0.5, 0.9, 0.99, 1.0, 2.0}) {
            const double most = share * seconds, found = p.model.seconds_up_to(most, known, shape, capacity, range);
            if (found > most)
              EXPECT_LE(found, seconds * (1 + 1e-12)) << text << ", up to " << share;
            else
              EXPECT_EQ(found, seconds) << text << ", up to " << share;
            (found > most ? bounds : exact) += 1;
            EXPECT_FALSE(share > 1 && found > most) << text;
          }
          waiting += shape.placement.tied() > 1;
          const std::optional<Placement> next = cut_further(shape.placement);
          more = next.has_value();
          if (more) shape.placement = *next;
        }
  }
  if (kProblems < 10) return;
  EXPECT_GT(exact, 1000);
  EXPECT_GT(bounds, 1000);
  EXPECT_GT(waiting, 100);
}

// What is remembered of one shape isn't taken for another's.
TEST(CostBounds, dont_depend_on_what_was_asked_before) {
  for (unsigned seed = 1; seed <= cases(12u, 2u); ++seed) {
    SmallProblem forwards(seed), backwards(seed);
    const Range range{0, static_cast<int>(forwards.model.bounds().size())};
    if (!forwards.model.any(range)) continue;
    const i64 capacity = capacities(forwards.model, range).front();
    std::vector<std::pair<double, double>> bounds, again;
    const auto ask = [&](const CostModel& model, const Shape& shape, auto& to) {
      const double of_layers = packed_layers(model, shape, capacity, range);
      to.emplace_back(of_layers, model.micro_batches_bound(shape, capacity, range));
    };
    for (const Shape& shape : forwards.shapes) ask(forwards.model, shape, bounds);
    for (auto shape = backwards.shapes.rbegin(); shape != backwards.shapes.rend(); ++shape)
      ask(backwards.model, *shape, again);
    std::ranges::reverse(again);
    for (size_t i = 0; i < bounds.size(); ++i)
      EXPECT_EQ(bounds[i], again[i]) << "seed " << seed << ", " << to_string(forwards.shapes[i]);
  }
}

TEST(CostBounds, are_below_the_times_they_stand_for) {
  int rings = 0, cut = 0, blockwise = 0, less = 0;
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    SmallProblem p(seed);
    const Range range{static_cast<int>(seed % p.model.bounds().size()), static_cast<int>(p.model.bounds().size())};
    if (!p.model.any(range)) continue;
    for (const Shape& shape : p.shapes)
      for (const i64 capacity : capacities(p.model, range)) {
        const std::string text = fmt::format("seed {}, {}, {} tokens", seed, to_string(shape), capacity);
        const double seconds = p.model.seconds(shape, capacity, range) * (1 + 1e-12);
        EXPECT_LE(p.model.rough_bound(shape.placement, range), seconds) << text;
        EXPECT_LE(p.model.layers_bound(shape, capacity, range), seconds) << text;
        EXPECT_LE(p.model.layers_bound(shape, capacity, range, false), p.model.layers_bound(shape, capacity, range))
            << "without transfers, " << text;
        Shape plain = shape;
        plain.recompute = config::Recompute::none;
        EXPECT_LE(p.model.layers_bound(plain, capacity, range), seconds) << "without recomputation, " << text;
        const double of_layers = packed_layers(p.model, shape, capacity, range);
        EXPECT_LE(of_layers, seconds) << text;
        EXPECT_LE(of_layers, p.model.micro_batches_bound(shape, capacity, range) * (1 + 1e-12)) << text;
        EXPECT_LE(p.model.micro_batches_bound(shape, capacity, range), seconds) << text;
        Shape other{shape.placement, shape.recompute};
        other.placement.inside = config::Inside::data;
        if (shape.splits_gradients()) other.schedule = config::ScheduleKind::zero_bubble;
        if (shape.blockwise()) {
          other.schedule = shape.schedule;
          other.every = shape.every;
          ++blockwise;
        }
        EXPECT_EQ(p.model.packed_layers_bounds(shape, std::vector<const Shape*>{&shape, &other}, capacity, range),
                  std::vector<double>(2, of_layers))
            << "in any order and schedule, " << text;
        plain.placement.zero = 1;
        const double of_plain =
            p.model.packed_layers_bounds(plain, std::vector<const Shape*>{&shape}, capacity, range, false).front();
        EXPECT_LE(of_plain, of_layers * (1 + 1e-12)) << "without recomputation and transfers, " << text;
        less += of_plain < of_layers;
        rings += shape.placement.ring() > 1;
        for (std::optional<Placement> next = cut_further(shape.placement); next; next = cut_further(*next)) {
          Shape further = shape;
          further.placement = *next;
          const double longer = p.model.seconds(further, capacity, range) * (1 + 1e-12);
          EXPECT_LE(of_layers, longer) << text << ", zero=" << next->zero;
          EXPECT_LE(p.model.micro_batches_bound(further, capacity, range), longer) << text << ", zero=" << next->zero;
          ++cut;
        }
      }
  }
  if (kProblems < 10) return;
  EXPECT_GT(rings, 100);
  EXPECT_GT(cut, 100);
  EXPECT_GT(blockwise, 100);
  EXPECT_GT(less, 100);
}

TEST(CostBounds, needs_are_at_least_what_they_are_known_to_be) {
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    SmallProblem p(seed);
    const Range range{0, static_cast<int>(p.model.bounds().size())};
    for (const Shape& shape : p.shapes)
      for (const i64 capacity : capacities(p.model, range)) {
        Shape cut = shape;
        cut.placement = leanest(shape.placement);
        const i64 least = p.model.least_need(cut, capacity, range).total();
        EXPECT_LE(least, p.model.need(cut, capacity, range).total());
        EXPECT_LE(least, p.model.least_need(shape, capacity, range).total()) << "whatever isn't cut";
        EXPECT_LE(p.model.least_need(shape, capacity, range).total(), p.model.need(shape, capacity, range).total());
        EXPECT_LE(p.model.least_home_bytes(), p.model.home_bytes({shape.placement}));
      }
  }
}

// What the micro-batches' bound says of the quickest candidates: if it said little, searches would time most of them.
TEST(CostBounds, of_micro_batches_are_near_the_times) {
  double sum = 0, of_layers = 0;
  int count = 0;
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    SmallProblem p(seed);
    const Range range{0, static_cast<int>(p.model.bounds().size())};
    if (p.units.hardware().device.alone_speedup > 1) continue;
    for (const Shape& shape : p.shapes) {
      const i64 capacity = capacities(p.model, range).back();
      sum += p.model.micro_batches_bound(shape, capacity, range) / p.model.seconds(shape, capacity, range);
      of_layers += packed_layers(p.model, shape, capacity, range) / p.model.seconds(shape, capacity, range);
      ++count;
    }
  }
  EXPECT_GT(sum / count, 0.9);
  EXPECT_GT(of_layers / count, 0.8);
}

}  // namespace
}  // namespace switchyard::planner
