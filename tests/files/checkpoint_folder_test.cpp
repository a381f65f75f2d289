#include "files/checkpoint_folder.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "files/disk.hpp"
#include "files/tensor_writer.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr i64 kRows = 64, kColumns = 32;

float value_at(i64 step, i64 element) { return static_cast<float>(step * 100'000 + element); }

CheckpointMeta meta_of(i64 step) {
  return {.step = step,
          .updates = step - 1,
          .tokens = step * 100,
          .seed = 7,
          .decay_end = 1000,
          .schedule = "linear",
          .places = {{.source = "", .epoch = 1, .position = step * 8, .offset = 3, .documents = 40, .tokens = 900}},
          .fingerprint = "tiny"};
}

void write_shard(const fs::path& folder, i64 step, int rank) {
  std::vector<float> rows;
  for (i64 i = rank * kRows / 2 * kColumns; i < (rank + 1) * kRows / 2 * kColumns; ++i)
    rows.push_back(value_at(step, i));
  TensorWriter shard =
      TensorWriter::create(folder / "state" / shard_name(rank, 2), {{"w", DType::f32, {kRows / 2, kColumns}}});
  shard.write("w", 0, raw_bytes(rows));
  shard.finish();
}

constexpr std::uint32_t kAttempt = 0x1b2f03c4;

/// All steps of saving, each of which may be the last one. `reached` is called after each.
void save(
    const fs::path& run, i64 step, const std::function<void(int)>& reached = [](int) {}) {
  CheckpointWriter writer = CheckpointWriter::begin(run, step, kAttempt);
  reached(0);
  write_text(writer.folder() / "model/config.json", "{}");
  reached(1);
  TensorFolderWriter weights =
      TensorFolderWriter::create(writer.folder() / "model", {{"w", DType::f32, {kRows, kColumns}}});
  reached(2);
  weights.finish();
  write_shard(partial_path(run, step, kAttempt), step, 0);
  reached(3);
  write_shard(partial_path(run, step, kAttempt), step, 1);
  reached(4);
  Manifest manifest{.parts = {"master"}, .shapes = {{"w", {kRows, kColumns}}}, .entries = {}};
  for (int rank = 0; rank < 2; ++rank) {
    manifest.entries.push_back(
        {"w", "master", {rank * kRows / 2, 0}, {(rank + 1) * kRows / 2, kColumns}, shard_name(rank, 2), "w"});
  }
  write_manifest(writer.folder(), manifest);
  reached(5);
  write_meta(writer.folder(), meta_of(step));
  reached(6);
  writer.commit();
  reached(7);
}
constexpr int kPoints = 8;

/// The state holds the values of `step`, every element.
void expect_values(const CheckpointPlace& place, i64 step) {
  EXPECT_EQ(place.step, step);
  EXPECT_EQ(read_meta(place.folder), meta_of(step));
  for (const ManifestEntry& entry : read_manifest(place.folder).entries) {
    const TensorFile shard = TensorFile::open(place.folder / "state" / entry.file);
    const auto values = values_of<float>(shard.data(entry.key));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], value_at(step, entry.lo[0] * kColumns + static_cast<i64>(i)));
  }
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, is_found_and_holds_what_was_saved) {
  const Scratch run;
  EXPECT_FALSE(newest_complete(run.path()));
  save(run.path(), 50);
  const auto place = newest_complete(run.path());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->folder, run / "checkpoints/step-00000050");
  expect_values(*place, 50);
  expect_values(find_checkpoint(run.path()), 50);
  expect_values(find_checkpoint(place->folder), 50);
  EXPECT_EQ(names_in(place->folder), (std::vector<std::string>{"COMMITTED", "meta.json", "model", "state"}));
}

TEST(Checkpoint, is_listed_by_step_and_only_when_committed) {
  const Scratch run;
  for (const i64 step : {100, 9, 123456789}) save(run.path(), step);
  fs::create_directories(run / "checkpoints/step-00000200");
  fs::create_directories(run / "checkpoints/step-00000300.partial");
  fs::create_directories(run / "checkpoints/notes");
  put(run / "checkpoints/notes/COMMITTED", "");
  std::vector<i64> steps;
  for (const auto& place : list_checkpoints(run.path())) steps.push_back(place.step);
  EXPECT_EQ(steps, (std::vector<i64>{9, 100, 123456789}));
}

TEST(Checkpoint, replaces_one_of_the_same_step) {
  const Scratch run;
  save(run.path(), 50);
  put(run / "checkpoints/step-00000050/model/extra", "old");
  save(run.path(), 50);
  EXPECT_EQ(names_in(run / "checkpoints"), std::vector<std::string>{"step-00000050"});
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000050/model/extra"));
  expect_values(find_checkpoint(run.path()), 50);
}

TEST(Checkpoint, that_is_given_up_leaves_nothing) {
  const Scratch run;
  { const CheckpointWriter writer = CheckpointWriter::begin(run.path(), 1, kAttempt); }
  EXPECT_TRUE(names_in(run / "checkpoints").empty());
}

TEST(Checkpoint, is_not_that_of_a_killed_job_which_still_writes) {
  const Scratch run;
  constexpr std::uint32_t kKilled = 7;
  const CheckpointWriter killed = CheckpointWriter::begin(run.path(), 50, kKilled);
  save(run.path(), 50, [&](int now) {
    if (now == 0) {
      EXPECT_FALSE(fs::exists(killed.folder())) << "what killed writers left is removed";
    }
    if (now == 4) {
      fs::create_directories(partial_path(run.path(), 50, kKilled) / "state");
      write_shard(partial_path(run.path(), 50, kKilled), 49, 1);
    }
  });
  expect_values(find_checkpoint(run.path()), 50);
  save(run.path(), 51);
  EXPECT_FALSE(fs::exists(killed.folder()));
}

TEST(Checkpoint, is_not_committed_unless_the_log_is_on_the_disk) {
  for (const char* name : {"log.jsonl", "validation.jsonl"}) {
    const Scratch run;
    put(run / name, "{}\n");
    save(run.path(), 50);
    fs::remove(run / name);
    fs::create_symlink("/dev/null", run / name);  // can't be synced
    EXPECT_THAT(message_of<ClusterError>([&] { save(run.path(), 100); }),
                HasSubstr("cannot sync " + (run / name).string()));
    EXPECT_EQ(find_checkpoint(run.path()).step, 50);
  }
}

TEST(Checkpoint, is_not_committed_while_a_shard_or_the_meta_file_is_missing) {
  const Scratch run;
  CheckpointWriter writer = CheckpointWriter::begin(run.path(), 1, kAttempt);
  EXPECT_THAT(message_of<UserError>([&] { writer.commit(); }),
              HasSubstr("cannot read " + (writer.folder() / "meta.json").string()));
  write_meta(writer.folder(), meta_of(1));
  write_manifest(writer.folder(),
                 {.parts = {"m"}, .shapes = {{"w", {1}}}, .entries = {{"w", "m", {0}, {1}, "home", "w"}}});
  EXPECT_THAT(message_of<UserError>([&] { writer.commit(); }), HasSubstr("state/home is missing"));
  EXPECT_FALSE(newest_complete(run.path()));
}

TEST(Checkpoint, survives_a_kill_at_every_point_of_saving_the_next_one) {
  for (int point = 0; point < kPoints; ++point) {
    const Scratch run;
    save(run.path(), 50);
    const pid_t child = fork();
    if (child == 0) {
      save(run.path(), 100, [&](int now) {
        if (now == point) _exit(0);
      });
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "point " << point;
    const bool committed = point == kPoints - 1;
    expect_values(find_checkpoint(run.path()), committed ? 100 : 50);
    EXPECT_EQ(fs::exists(partial_path(run.path(), 100, kAttempt)), !committed);
    save(run.path(), 150);
    expect_values(find_checkpoint(run.path()), 150);
    EXPECT_FALSE(fs::exists(partial_path(run.path(), 100, kAttempt))) << "begin() cleans up";
  }
}

TEST(Checkpoint, survives_kills_at_random_moments) {
  const Scratch run;
  const auto begin = std::chrono::steady_clock::now();
  save(run.path(), 1);
  const std::chrono::duration<double, std::micro> one_save = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(20240607);
  i64 newest = 1;
  int killed_inside = 0;
  size_t kept = 1;
  constexpr int kRounds = 25, kMostRounds = 1000;  // more where the machine has become slower: then they last longer
  for (int round = 0; round < kRounds || (round < kMostRounds && (newest == 1 || killed_inside == 0)); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (i64 step = newest + 1; step < newest + 1000; ++step) {
        save(run.path(), step);
        remove_old_checkpoints(run.path(), 2);
      }
      _exit(1);
    }
    const double longest = 3.0 * (1 + round / kRounds) * one_save.count();
    usleep(static_cast<useconds_t>(std::uniform_real_distribution<>(0, longest)(random)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const std::string& name : names_in(run / "checkpoints")) killed_inside += name.ends_with(".partial");
    const CheckpointPlace place = find_checkpoint(run.path());
    EXPECT_GE(place.step, newest);
    expect_values(place, place.step);
    newest = place.step;
    // At most one more than are kept; or than there were, where a child is killed before it has removed any.
    const size_t before = std::exchange(kept, list_checkpoints(run.path()).size());
    EXPECT_LE(kept, std::max<size_t>(3, before + 1));
  }
  remove_old_checkpoints(run.path(), 2);
  EXPECT_LE(list_checkpoints(run.path()).size(), 2u);
  EXPECT_GT(newest, 1);
  EXPECT_GT(killed_inside, 0);
}

TEST(Checkpoint, stays_intact_when_the_disk_fills_while_the_next_one_is_saved) {
  const Scratch scratch;
  const SmallDisk disk(scratch / "run", 80 * 1024);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs root";
  save(scratch / "run", 50);
  const std::string message = message_of<ClusterError>([&] { save(scratch / "run", 100); });
  EXPECT_THAT(message, HasSubstr("No space left on device."));
  EXPECT_THAT(message, HasSubstr("checkpoints/step-00000100.1b2f03c4.partial/"));
  EXPECT_THAT(message, testing::ContainsRegex("[1-9][0-9]* bytes are needed, [0-9]+ are free"));
  EXPECT_EQ(names_in(scratch / "run/checkpoints"), std::vector<std::string>{"step-00000050"});
  expect_values(find_checkpoint(scratch / "run"), 50);
}

TEST(Checkpoint, stays_intact_when_a_file_may_not_grow) {
  const Scratch run;
  save(run.path(), 50);
  {
    const FileSizeLimit limit(3000);
    EXPECT_THAT(message_of<ClusterError>([&] { save(run.path(), 100); }), HasSubstr("File too large"));
  }
  EXPECT_EQ(names_in(run / "checkpoints"), std::vector<std::string>{"step-00000050"});
  expect_values(find_checkpoint(run.path()), 50);
}

class Damage : public testing::Test {
 protected:
  Damage() {
    save(run_.path(), 50);
    save(run_.path(), 100);
  }
  fs::path newest() { return run_ / "checkpoints/step-00000100"; }
  std::string refusal() {
    return message_of<UserError>([&] { find_checkpoint(run_.path()); });
  }
  std::string remedy(i64 step) { return "--resume " + checkpoint_path(run_.path(), step).string(); }
  Scratch run_;
};

const std::vector<std::string> kFiles{"meta.json",
                                      "model/config.json",
                                      "model/model.safetensors",
                                      "state/manifest.json",
                                      "state/home-00000-of-00002.safetensors",
                                      "state/home-00001-of-00002.safetensors"};

TEST_F(Damage, of_each_file_is_named_with_the_checkpoint_to_resume_from) {
  for (const std::string& file : kFiles) {
    const std::string whole = get(newest() / file);
    put(newest() / file, whole.substr(0, whole.size() / 2));
    EXPECT_THAT(refusal(), HasSubstr((newest() / file).string() + " is damaged: it has "));
    EXPECT_THAT(refusal(), testing::EndsWith(remedy(50)));
    fs::remove(newest() / file);
    EXPECT_THAT(refusal(), HasSubstr((newest() / file).string() + " is missing."));
    EXPECT_THAT(refusal(), testing::EndsWith(remedy(50)));
    fs::create_directory(newest() / file);
    EXPECT_THAT(refusal(), HasSubstr((newest() / file).string() + " is no file."));
    EXPECT_THAT(refusal(), testing::EndsWith(remedy(50)));
    fs::remove(newest() / file);
    put(newest() / file, whole);
    EXPECT_NO_THROW(find_checkpoint(run_.path()));
  }
}

TEST_F(Damage, inside_a_json_file_is_found_by_its_checksum) {
  for (const std::string& file : kFiles) {
    if (!file.ends_with(".json")) continue;
    std::string text = get(newest() / file);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    const std::string whole = get(newest() / file);
    put(newest() / file, text);
    EXPECT_THAT(refusal(), HasSubstr((newest() / file).string() + " is damaged: its checksum differs."));
    put(newest() / file, whole);
  }
}

TEST_F(Damage, of_a_shard_header_is_found) {
  const std::string file = (newest() / "state" / shard_name(1, 2)).string();
  std::string bytes = get(file);
  bytes[10] = '\x01';
  put(file, bytes);
  EXPECT_THAT(refusal(), HasSubstr(file));
  EXPECT_THAT(refusal(), testing::EndsWith(remedy(50)));
}

TEST_F(Damage, of_the_marker_is_named) {
  put(newest() / "COMMITTED", "");
  EXPECT_THAT(refusal(), HasSubstr((newest() / "COMMITTED").string() + " is damaged."));
}

TEST_F(Damage, of_all_checkpoints_leaves_a_fresh_start) {
  for (const i64 step : {50, 100}) put(checkpoint_path(run_.path(), step) / "meta.json", "");
  EXPECT_THAT(refusal(),
              testing::EndsWith("No older checkpoint of this run is intact: start anew with --force, which sets "
                                "the run aside."));
}

TEST_F(Damage, is_remedied_by_the_newest_older_one_that_is_intact) {
  save(run_.path(), 150);
  put(run_ / "checkpoints/step-00000100/meta.json", "");
  put(run_ / "checkpoints/step-00000150/meta.json", "");
  EXPECT_THAT(refusal(), testing::EndsWith(remedy(50)));
  EXPECT_THAT(message_of<UserError>([&] { find_checkpoint(run_ / "checkpoints/step-00000150/"); }),
              testing::EndsWith(remedy(50)));
}

TEST(Resume, says_that_a_folder_does_not_exist_or_holds_no_checkpoint) {
  const Scratch run;
  EXPECT_EQ(message_of<UserError>([&] { find_checkpoint(run / "none"); }),
            (run / "none").string() + " does not exist. Give a run folder, or a checkpoint in it.");
  CheckpointWriter writer = CheckpointWriter::begin(run.path(), 5, kAttempt);
  EXPECT_EQ(message_of<UserError>([&] { find_checkpoint(run.path()); }),
            run.path().string() +
                " holds no complete checkpoint. Give a run folder with checkpoints/step-... in it, or one of these.");
  EXPECT_THAT(message_of<UserError>([&] { verify_checkpoint(writer.folder()); }),
              HasSubstr("is not a complete checkpoint: it has no COMMITTED file."));
}

TEST(Meta, names_the_key_it_lacks) {
  const Scratch scratch;
  put(scratch / "meta.json", R"({"step": 3})");
  EXPECT_THAT(message_of<UserError>([&] { read_meta(scratch.path()); }), HasSubstr("key 'updates' not found"));
}

TEST(Meta, of_an_earlier_version_does_not_know_its_corpus) {
  const Scratch scratch;
  put(scratch / "meta.json", R"({"step": 3, "updates": 3, "tokens": 9, "seed": 1, "fingerprint": "", "epoch": 0,
                                 "position": 2, "offset": 0})");
  EXPECT_EQ(read_meta(scratch.path()).places,
            (std::vector<DataPlace>{{.source = "", .epoch = 0, .position = 2, .offset = 0}}));
}

TEST(GoingBack, sets_later_checkpoints_aside_as_a_run_folder_of_their_own) {
  const Scratch run;
  put(run / "log.jsonl", "{\"step\":1}\n");
  put(run / "validation.jsonl", "{\"step\":4}\n");
  put(run / "job.toml", "seed = 1");
  put(run / "timeline.json", "{}");
  put(run / "wandb-id", "abc");
  for (const i64 step : {2, 4, 6}) save(run.path(), step);
  const auto line = set_aside_after(run.path(), 2);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->folder, run / "abandoned-1");
  EXPECT_EQ(line->steps, (std::vector<i64>{4, 6}));
  EXPECT_EQ(names_in(run / "checkpoints"), std::vector<std::string>{"step-00000002"});
  EXPECT_EQ(names_in(line->folder), (std::vector<std::string>{"checkpoints", "job.toml", "log.jsonl", "timeline.json",
                                                              "validation.jsonl", "wandb-id"}));
  EXPECT_FALSE(fs::exists(run / "wandb-id")) << "the run there has the steps that were left";
  for (const char* name : {"log.jsonl", "validation.jsonl"}) EXPECT_EQ(get(line->folder / name), get(run / name));
  expect_values(find_checkpoint(run.path()), 2);
  expect_values(find_checkpoint(line->folder), 6);
  expect_values(find_checkpoint(checkpoint_path(line->folder, 4)), 4);
}

TEST(GoingBack, to_the_newest_checkpoint_changes_nothing) {
  const Scratch run;
  for (const i64 step : {2, 4}) save(run.path(), step);
  EXPECT_FALSE(set_aside_after(run.path(), 4));
  EXPECT_EQ(names_in(run.path()), std::vector<std::string>{"checkpoints"});
  EXPECT_EQ(list_checkpoints(run.path()).size(), 2u);
}

TEST(GoingBack, again_keeps_what_was_set_aside_before) {
  const Scratch run;
  for (const i64 step : {2, 4}) save(run.path(), step);
  set_aside_after(run.path(), 2);
  put(run / "abandoned-1/checkpoints/step-00000004/first", "");
  save(run.path(), 4);
  EXPECT_EQ(set_aside_after(run.path(), 2)->folder, run / "abandoned-2");
  EXPECT_TRUE(fs::exists(run / "abandoned-1/checkpoints/step-00000004/first"));
  expect_values(find_checkpoint(run / "abandoned-2"), 4);
}

TEST(GoingBack, to_the_start_sets_all_that_the_run_wrote_aside) {
  const Scratch run;
  const std::vector<std::string> written{"events.out.tfevents.1", "job.toml",      "log.jsonl",        "plan.json",
                                         "report.html",           "timeline.json", "validation.jsonl", "wandb-id"};
  for (const std::string& name : written) put(run / name, "of the run");
  for (const char* folder : {"checkpoints", "wandb"}) fs::create_directories(run / folder);
  put(run / "mine.txt", "");
  const fs::path aside = set_aside(run.path());
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"abandoned-1", "mine.txt"}));
  std::vector<std::string> all = written;
  all.insert(all.end(), {"checkpoints", "wandb"});
  std::ranges::sort(all);
  EXPECT_EQ(names_in(aside), all);
}

// RUN/checkpoints leads to a larger disk.
class LinkedCheckpoints : public testing::Test {
 protected:
  LinkedCheckpoints() : disk_(scratch_ / "disk", 4 << 20) {
    fs::create_directories(run_);
    fs::create_directory_symlink("../disk", run_ / "checkpoints");
    for (const i64 step : {2, 4}) save(run_, step);
    put(run_ / "log.jsonl", "{\"step\":4}\n");
  }
  void expect_aside(const std::vector<i64>& steps) {
    EXPECT_TRUE(fs::is_symlink(run_ / "checkpoints")) << "what comes next goes there, too";
    EXPECT_TRUE(fs::equivalent(run_ / "abandoned-1/checkpoints", scratch_ / "disk/abandoned-1"));
    EXPECT_EQ(list_checkpoints(run_ / "abandoned-1").size(), steps.size());
    for (const i64 step : steps) expect_values(find_checkpoint(checkpoint_path(run_ / "abandoned-1", step)), step);
    save(run_, 4);
    EXPECT_EQ(set_aside_after(run_, 2)->folder, run_ / "abandoned-2");
  }

  const Scratch scratch_;
  const fs::path run_ = scratch_ / "run";
  const SmallDisk disk_;  // or a folder of the same disk, where nothing may be mounted
};

TEST_F(LinkedCheckpoints, are_set_aside_where_the_link_leads_when_a_run_goes_back) {
  EXPECT_EQ(set_aside_after(run_, 2)->steps, std::vector<i64>{4});
  expect_aside({4});
}

TEST_F(LinkedCheckpoints, are_set_aside_where_the_link_leads_when_a_run_starts_anew) {
  set_aside(run_);
  EXPECT_TRUE(list_checkpoints(run_).empty());
  expect_aside({2, 4});
}

TEST(Checkpoint, belongs_to_the_run_whose_folder_it_lies_in) {
  const Scratch run;
  save(run.path(), 2);
  fs::create_directory_symlink(run.path(), run / "link");
  for (const char* name :
       {"checkpoints/step-00000002", "checkpoints/step-00000002/", "link/checkpoints/step-00000002"}) {
    EXPECT_TRUE(is_checkpoint_of(run / name, run.path())) << name;
    EXPECT_TRUE(is_checkpoint_of(run / name, run / "link/")) << name;
    EXPECT_FALSE(is_checkpoint_of(run / name, run / "other")) << name;
  }
  EXPECT_FALSE(is_checkpoint_of(run / "abandoned-1/checkpoints/step-00000004", run.path()));
}

TEST(Cleaning, meanwhile_a_reader_finds_the_newest_one) {
  const Scratch run;
  save(run.path(), 1);
  std::atomic<bool> ended = false;
  std::thread trains([&] {
    for (i64 step = 2; !ended; ++step) {
      save(run.path(), step);
      remove_old_checkpoints(run.path(), 1);
    }
  });
  for (int i = 0; i < 300; ++i) EXPECT_NO_THROW(find_checkpoint(run.path()));
  ended = true;
  trains.join();
}

TEST(Cleaning, keeps_the_newest_ones_and_never_removes_the_last) {
  const Scratch run;
  for (const i64 step : {1, 2, 3, 4}) save(run.path(), step);
  EXPECT_EQ(remove_old_checkpoints(run.path(), 2), std::vector<std::string>{});
  EXPECT_EQ(names_in(run / "checkpoints"), (std::vector<std::string>{"step-00000003", "step-00000004"}));
  remove_old_checkpoints(run.path(), 0);
  EXPECT_EQ(names_in(run / "checkpoints"), (std::vector<std::string>{"step-00000004"}));
}

// Without the rights of root, who may remove everything, while it lives.
class Unprivileged {
 public:
  explicit Unprivileged(const fs::path& folder) {
    if (!is_root_) return;
    for (const auto& item : fs::recursive_directory_iterator(folder))
      if (::chown(item.path().c_str(), kNobody, kNobody) != 0) std::abort();
    if (::chown(folder.c_str(), kNobody, kNobody) != 0 || ::seteuid(kNobody) != 0) std::abort();
  }
  Unprivileged(const Unprivileged&) = delete;
  ~Unprivileged() {
    if (is_root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  static constexpr uid_t kNobody = 65534;
  const bool is_root_ = ::geteuid() == 0;
};

TEST(Cleaning, leaves_a_checkpoint_whose_owner_allows_no_removal_as_it_is) {
  const Scratch run;
  for (const i64 step : {1, 2, 3}) save(run.path(), step);
  const fs::path kept = checkpoint_path(run.path(), 1), partial = kept.string() + ".partial";
  const auto permit = [](const fs::path& checkpoint, fs::perms permissions) {
    for (const fs::path& folder : {checkpoint, checkpoint / "model", checkpoint / "state"})
      fs::permissions(folder, permissions);
  };
  permit(kept, fs::perms::owner_read | fs::perms::owner_exec);
  {
    const Unprivileged owner(run.path());
    EXPECT_EQ(remove_old_checkpoints(run.path(), 1),
              std::vector<std::string>{"cannot remove " + kept.string() + ": Permission denied"});
    EXPECT_EQ(names_in(run / "checkpoints"), (std::vector<std::string>{"step-00000001", "step-00000003"}));
    expect_values(find_checkpoint(kept), 1);
    fs::rename(kept, partial);  // what a kill leaves meanwhile
    save(run.path(), 4);
  }
  permit(partial, fs::perms::owner_all);
  expect_values(find_checkpoint(run.path()), 4);
}

}  // namespace
}  // namespace switchyard::files
