#include "comm/measure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

TEST(Measure, TheBoundCopiesWhatAnAllReduceBringsToARank) {
  EXPECT_EQ(all_reduce_volume(1000, 2), 1000);
  EXPECT_EQ(all_reduce_volume(1000, 4), 1500);
  const CommFigure figure{4, 1000, 2e-6, 1e-6};
  EXPECT_DOUBLE_EQ(figure.share(), 0.5);
  EXPECT_DOUBLE_EQ(figure.bytes_per_second(), 1500 / 2e-6);
}

TEST(Measure, EverySizeGivesALineOfTheTable) {
  const std::vector<i64> sizes{4096, 1 << 20};
  const std::vector<CommFigure> figures = measure_all_reduce(sizes, 3, 2);
  ASSERT_EQ(figures.size(), 2u);
  for (const CommFigure& figure : figures) {
    EXPECT_GT(figure.all_reduce_seconds, 0);
    EXPECT_GT(figure.copy_seconds, 0);
  }
  EXPECT_EQ(table({{{2, 4096, 0.0005, 0.00025}}}),
            "ranks          bytes   all-reduce    MB/s a rank  memory copy  share of bound\n"
            "    2           4096     0.500 ms              8     0.250 ms             50%\n");
}

TEST(Measure, RefusesSizesThatAreNoElements) {
  const std::vector<i64> odd{6};
  EXPECT_THROW(measure_all_reduce(odd, 2, 1), InternalError);
  EXPECT_THROW(measure_all_reduce({}, 1, 1), InternalError);
}

}  // namespace
}  // namespace switchyard::comm
