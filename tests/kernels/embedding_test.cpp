#include "kernels/embedding.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

const std::vector<i64> kIds = {3, 9, 3, -1, 4, 12, 3, 7};

TEST(Embedding, RowsOutsideThePartAreZero) {
  for (const auto type : kTypes) {
    const auto table = random({5, 70}, type, 1, 2);  // the part [3, 8) of the vocabulary
    const auto table_v = values(table);
    Doubles expected;
    for (const i64 id : kIds) {
      for (i64 h = 0; h < 70; ++h) expected.push_back(id >= 3 && id < 8 ? table_v[(id - 3) * 70 + h] : 0);
    }
    auto y = hole({8, 70}, type, 4);
    embedding(y, integers(kIds), table, 3);
    expect_close(y, expected, 0, "y");
  }
}

TEST(Embedding, GradientAddsEveryUseOfARow) {
  for (const auto type : kTypes) {
    const auto dy = random({8, 70}, type, 1, 2);
    const auto dy_v = values(dy);
    auto dtable = random({5, 70}, state_of(type), 2, 2);
    Doubles expected = values(dtable);
    for (i64 t = 0; t < 8; ++t) {
      if (kIds[t] < 3 || kIds[t] >= 8) continue;
      for (i64 h = 0; h < 70; ++h) expected[(kIds[t] - 3) * 70 + h] += dy_v[t * 70 + h];
    }
    embedding_dw(dtable, dy, integers(kIds), 3);
    expect_close(dtable, expected, tolerance_of(state_of(type)), "dtable");
  }
}

TEST(Embedding, GradientHasTheSameBitsForAnyNumberOfThreads) {
  const auto dy = random({4000, 200}, at::kFloat, 1);
  std::vector<i64> ids;
  for (i64 t = 0; t < 4000; ++t) ids.push_back(t * t % 11);
  const auto id = integers(ids);
  expect_same_for_any_threads(
      [&] {
        auto dtable = filled({11, 200}, at::kFloat, 0);
        embedding_dw(dtable, dy, id, 0);
        return dtable;
      },
      "dtable");
}

TEST(Embedding, AnEmptyPartOrNoTokensIsFine) {
  for (const auto type : kTypes) {
    auto y = hole({8, 6}, type);
    embedding(y, integers(kIds), hole({0, 6}, type), 3);
    expect_close(y, Doubles(48, 0.0), 0, "y of an empty part");
    auto none = hole({0, 6}, type);
    embedding(none, integers({}), random({5, 6}, type, 1), 0);
    auto dtable = filled({5, 6}, state_of(type), 1);
    embedding_dw(dtable, none, integers({}), 0);
    expect_close(dtable, Doubles(30, 1.0), 0, "dtable kept");
    auto no_rows = hole({0, 6}, state_of(type));
    embedding_dw(no_rows, y, integers(kIds), 3);
  }
}

TEST(Embedding, RefusesIdsOfAnotherLengthOrType) {
  auto y = hole({8, 6}, at::kFloat);
  auto table = hole({5, 6}, at::kFloat);
  EXPECT_THROW(embedding(y, integers({1}), table, 0), InternalError);
  EXPECT_THROW(embedding_dw(table, y, hole({8}, at::kFloat), 0), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
