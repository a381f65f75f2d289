#include "base/dtype.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"

namespace switchyard {
namespace {

TEST(DType, every_type_has_its_size_and_name) {
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::i64), 8);
  EXPECT_EQ(size_of(DType::i32), 4);
  EXPECT_EQ(name_of(DType::f64), "f64");
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::i64), "i64");
  EXPECT_EQ(name_of(DType::i32), "i32");
}

TEST(Precision, state_is_fp32_or_wider_and_names_go_there_and_back) {
  EXPECT_EQ(precision_from("bf16"), (Precision{DType::bf16, DType::f32}));
  EXPECT_EQ(precision_from("fp32"), (Precision{DType::f32, DType::f32}));
  EXPECT_EQ(precision_from("fp64"), (Precision{DType::f64, DType::f64}));
  for (const char* name : {"fp64", "fp32", "bf16"}) EXPECT_EQ(name_of(precision_from(name)), name);
}

TEST(Precision, an_unknown_name_lists_the_known_ones) {
  try {
    precision_from("fp8");
    FAIL() << "fp8 was taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "precision \"fp8\" is unknown. Use fp64, fp32 or bf16.");
  }
}

TEST(DType, a_type_out_of_range_is_a_bug) {
  EXPECT_THROW(size_of(static_cast<DType>(99)), InternalError);
  EXPECT_THROW(name_of(static_cast<DType>(99)), InternalError);
}

}  // namespace
}  // namespace switchyard
