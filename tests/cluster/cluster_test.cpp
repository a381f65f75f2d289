#include "cluster/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../scratch.hpp"
#include "base/errors.hpp"

namespace switchyard::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Hostfile : public testing::Test {
 protected:
  std::string write(const std::string& text) { return folder_.file("hosts", text); }
  std::string message_of(const std::string& text) {
    try {
      from_hostfile(write(text));
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  Scratch folder_;
};

std::string spec_error(const char* spec) {
  try {
    from_spec(spec);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Cluster, two_hosts_of_three_ranks_are_numbered_in_rank_order) {
  const Cluster cluster = uniform(2, 3);
  EXPECT_THAT(cluster.host, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_EQ(cluster.ranks(), 6);
  EXPECT_EQ(cluster.hosts(), 2);
  EXPECT_EQ(Cluster{}.hosts(), 0);
}

TEST(Cluster, links_differ_for_a_rank_its_host_and_other_hosts) {
  const Cluster cluster = uniform(2, 2);
  EXPECT_EQ(cluster.link(1, 1), Link::local);
  EXPECT_EQ(cluster.link(0, 1), Link::intra_host);
  EXPECT_EQ(cluster.link(1, 2), Link::inter_host);
  EXPECT_TRUE(cluster.same_host(2, 3));
  EXPECT_FALSE(cluster.same_host(0, 3));
}

TEST(Cluster, a_specification_gives_hosts_times_devices) {
  EXPECT_EQ(from_spec("4x8").host, uniform(4, 8).host);
  EXPECT_TRUE(is_topology("4x8"));
  EXPECT_FALSE(is_topology("4x"));
  for (const char* bad : {"", "8", "2x", "x8", "0x8", "2x-1", "2x8 ", "2 x 8", "axb", "2x8x1", "99999999999x1"}) {
    EXPECT_THAT(spec_error(bad), HasSubstr(fmt::format("cluster \"{}\" is not understood", bad)));
    EXPECT_THAT(spec_error(bad), HasSubstr("e.g. 2x8"));
  }
  EXPECT_THAT(spec_error("1000000x1000000"), HasSubstr("at most 1000000"));
}

TEST_F(Hostfile, slots_comments_and_repeated_hosts_are_read_as_open_mpi_reads_them) {
  const Cluster cluster =
      from_hostfile(write("# two machines\n\nalpha slots=2 max_slots=4\nbeta  # one slot\r\nalpha slots=1\n"));
  EXPECT_THAT(cluster.names, ElementsAre("alpha", "beta"));
  EXPECT_THAT(cluster.host, ElementsAre(0, 0, 0, 1));
}

TEST_F(Hostfile, a_bad_line_is_named_with_file_and_number) {
  EXPECT_THAT(message_of("a slots=2\nb slot=2\n"),
              HasSubstr((folder_ / "hosts").string() + ":2: \"slot=2\" is not understood. A line is: name slots=N"));
  EXPECT_THAT(message_of("a slots=0\n"), HasSubstr(":1: \"slots=0\" needs a positive whole number, e.g. slots=8"));
  EXPECT_THAT(message_of("a slots\n"), HasSubstr(":1: \"slots\" needs a positive whole number"));
  EXPECT_THAT(message_of("slots=4\n"), HasSubstr(":1: the line starts with \"slots=4\""));
  EXPECT_THAT(message_of("# nothing\n"), HasSubstr("names no host"));
}

TEST_F(Hostfile, a_specification_may_be_the_path_of_one) {
  EXPECT_THAT(from_spec(write("alpha slots=2\nbeta slots=1\n")).host, ElementsAre(0, 0, 1));
}

TEST_F(Hostfile, a_missing_file_is_named) {
  try {
    from_hostfile("/nowhere/hosts");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("hostfile \"/nowhere/hosts\" cannot be read"));
  }
}

}  // namespace
}  // namespace switchyard::cluster
