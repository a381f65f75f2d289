#include "planner/shape_index.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

auto degrees_of_all(const Placement& p, bool by_ranks) {
  return std::tuple(p.dp, p.pp, by_ranks ? StageMesh{} : p.mesh, p.stage_ranks());
}
auto code_of(const Shape& shape) {
  const Placement& p = shape.placement;
  return std::tuple(p.dp, p.pp, p.mesh, p.zero, shape.code());
}
auto layers_of(const ShapeIndex& index, int shape) {
  const Placement& p = index.shape(shape).placement;
  return std::tuple(p.chunks, p.path, p.head_layers);
}
size_t different_layers(const ShapeIndex& index, const std::vector<int>& shapes) {
  std::set<decltype(layers_of(index, 0))> layers;
  for (const int shape : shapes) layers.insert(layers_of(index, shape));
  return layers.size();
}

// Groups follow one another without gaps, and each holds what belongs together.
TEST(ShapeIndex, puts_each_shape_into_one_group_of_each_kind) {
  size_t shared_codes = 0;
  for (unsigned seed = 1; seed <= cases(20u, 3u); ++seed) {
    const SmallProblem problem(seed);
    for (const bool by_ranks : {false, true}) {
      const ShapeIndex index(problem.shapes, by_ranks);
      ASSERT_EQ(static_cast<size_t>(index.size()), problem.shapes.size());
      std::set<int> seen;
      int shape = 0, mesh = 0, family = 0, code = 0;
      for (const ShapeIndex::Degrees& degrees : index.degrees()) {
        EXPECT_EQ(degrees.shapes.begin, shape);
        EXPECT_EQ(degrees.meshes.begin, mesh);
        for (; mesh < degrees.meshes.end; ++mesh) {
          EXPECT_EQ(index.mesh(mesh).shapes.begin, shape);
          EXPECT_EQ(index.mesh(mesh).families.begin, family);
          for (; family < index.mesh(mesh).families.end; ++family) {
            const ShapeIndex::Family& of = index.family(family);
            EXPECT_EQ(of.codes.begin, code);
            EXPECT_EQ(different_layers(index, of.layers), of.layers.size());
            for (; code < of.codes.end; ++code) {
              for (const ShapeIndex::Layers& layers : index.code(code).layers)
                EXPECT_EQ(layers_of(index, layers.shape),
                          layers_of(index, of.layers[static_cast<size_t>(layers.of_family)]));
              for (const ShapeIndex::Member& member : index.code(code).members) {
                const Shape &one = index.shape(member.shape), &first = index.shape(index.code(code).members[0].shape);
                EXPECT_TRUE(seen.insert(member.shape).second) << "seed " << seed;
                EXPECT_EQ(code_of(one), code_of(first));
                EXPECT_EQ(one.splits_gradients(), index.shape(of.layers.front()).splits_gradients());
                EXPECT_EQ(degrees_of_all(one.placement, by_ranks),
                          degrees_of_all(index.shape(degrees.shapes.begin).placement, by_ranks));
                const int same = index.code(code).layers[static_cast<size_t>(member.layers)].shape;
                EXPECT_EQ(layers_of(index, member.shape), layers_of(index, same));
              }
            }
          }
          shape = index.mesh(mesh).shapes.end;
          for (const int number : {shape - 1, index.mesh(mesh).shapes.begin})
            EXPECT_TRUE(seen.contains(number)) << "seed " << seed << ", shape " << number;
        }
        EXPECT_EQ(degrees.shapes.end, shape);
      }
      EXPECT_EQ(seen.size(), problem.shapes.size());
      std::set<decltype(code_of(Shape()))> codes;
      for (const Shape& one : problem.shapes) codes.insert(code_of(one));
      EXPECT_EQ(static_cast<size_t>(code), codes.size()) << "equal codes of a mesh are one group";
      shared_codes += problem.shapes.size() - codes.size();
    }
  }
  EXPECT_GT(shared_codes, 0u);
}

TEST(ShapeIndex, numbers_placements_whatever_their_stage_of_zero) {
  for (unsigned seed = 1; seed <= cases(20u, 3u); ++seed) {
    const SmallProblem problem(seed);
    const ShapeIndex index(problem.shapes, false);
    std::set<std::pair<int, PlacementKey>> pairs;
    std::set<int> numbers;
    for (int i = 0; i < index.size(); ++i)
      for (int zero = 1; zero <= ShapeIndex::kZeros; ++zero) {
        Placement placement = index.shape(i).placement;
        placement.zero = zero;
        pairs.emplace(index.placement(i, zero), placement_key(placement));
        numbers.insert(index.placement(i, zero));
      }
    std::set<PlacementKey> keys;
    for (const auto& [number, key] : pairs) keys.insert(key);
    EXPECT_EQ(pairs.size(), keys.size()) << "seed " << seed << ": a placement has one number";
    EXPECT_EQ(pairs.size(), numbers.size()) << "seed " << seed << ": a number has one placement";
    EXPECT_EQ(index.placements(), static_cast<int>(numbers.size()));
  }
}

}  // namespace
}  // namespace switchyard::planner
