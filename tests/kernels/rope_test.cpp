#include "kernels/rope.hpp"

#include <complex>

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

/// 100^(-2i / dim) for each pair i.
std::vector<double> frequencies_of(int dim) {
  std::vector<double> frequencies;
  for (int i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(100, -2.0 * i / dim));
  return frequencies;
}

TEST(Rope, RotatesPairsLikeComplexNumbers) {
  const int dim = 6;
  const double scale = 1.25;
  const auto frequencies = frequencies_of(dim);
  const std::vector<i64> positions = {0, 5, 2, 40};
  for (const auto type : kTypes) {
    at::Tensor cos, sin;
    rope_tables(cos, sin, {{frequencies, 0, 41}}, scale, hole({1}, state_of(type)));
    ASSERT_EQ(cos.scalar_type(), state_of(type));
    const auto x = random({4, 3 * dim}, type, 1, 2);
    const auto x_v = values(x);
    for (const bool inverse : {false, true}) {
      Doubles expected(x_v.size());
      for (i64 t = 0; t < 4; ++t) {
        for (i64 h = 0; h < 3; ++h) {
          for (i64 i = 0; i < 3; ++i) {
            const i64 a = t * 18 + h * 6 + i;
            const double angle = static_cast<double>(positions[t]) * frequencies[i] * (inverse ? -1 : 1);
            const auto turned = std::complex<double>(x_v[a], x_v[a + 3]) * std::polar(scale, angle);
            expected[a] = turned.real();
            expected[a + 3] = turned.imag();
          }
        }
      }
      auto y = hole({4, 3 * dim}, type, 4);
      rope(y, x, cos, sin, integers(positions), dim, inverse);
      expect_close(y, expected, tolerance_of(type), "y");
      auto in_place = x.clone();
      rope(in_place, in_place, cos, sin, integers(positions), dim, inverse);
      expect_same_bits(in_place, y, "in place");
    }
  }
}

TEST(Rope, TablesHaveARowForEachPositionOfTheirStretches) {
  const std::vector<double> fast = {1, 0.5}, slow = {0.25, 0.125};
  for (const auto type : {at::kDouble, at::kFloat}) {
    at::Tensor cos, sin, of_fast[2], of_slow[2];
    rope_tables(cos, sin, {{fast, 3, 2}, {slow, 0, 4}, {fast, 0, 0}, {fast, 0, 1}}, 2, hole({1}, type));
    rope_tables(of_fast[0], of_fast[1], {{fast, 0, 5}}, 2, hole({1}, type));
    rope_tables(of_slow[0], of_slow[1], {{slow, 0, 4}}, 2, hole({1}, type));
    ASSERT_EQ(cos.size(0), 7);
    for (const auto& [table, from, other] :
         {std::tuple(cos, of_fast[0], of_slow[0]), std::tuple(sin, of_fast[1], of_slow[1])}) {
      expect_same_bits(table.narrow(0, 0, 2), from.narrow(0, 3, 2), "positions 3 and 4");
      expect_same_bits(table.narrow(0, 2, 4), other, "another document");
      expect_same_bits(table.narrow(0, 6, 1), from.narrow(0, 0, 1), "padding");
    }
  }
}

TEST(Rope, EmptyTensorsAreAccepted) {
  at::Tensor cos, sin;
  for (const auto type : kTypes) {
    rope_tables(cos, sin, {{frequencies_of(4), 0, 3}}, 1, hole({1}, state_of(type)));
    auto no_tokens = hole({0, 8}, type), no_heads = hole({2, 0}, type);
    rope(no_tokens, no_tokens, cos, sin, integers({}), 4, false);
    rope(no_heads, no_heads, cos, sin, integers({0, 1}), 4, false);
  }
}

TEST(Rope, RefusesPositionsBeyondTheTables) {
  at::Tensor cos, sin;
  rope_tables(cos, sin, {{frequencies_of(4), 0, 3}}, 1, hole({1}, at::kFloat));
  auto x = random({2, 4}, at::kFloat, 1);
  try {
    rope(x, x, cos, sin, integers({0, 3}), 4, false);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "rope: row 1 is at position 3, the tables end before 3");
  }
  EXPECT_THROW(rope(x, x, cos, sin, integers({0}), 4, false), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
