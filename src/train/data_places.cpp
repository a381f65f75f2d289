#include "train/data_places.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

constexpr const char* kNewData = "--new-data goes on with other data";

// data.path has no name.
std::string named(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{""} ? "data.path" : fmt::format("{}", fmt::join(names, ", "));
}

std::string words(const std::vector<std::string>& names) {
  return (names == std::vector<std::string>{""} ? "" : "the sources ") + named(names);
}

// Their order decides the order of documents, their weights only what is drawn from now on.
void require_names(const std::string& resumed, const std::vector<files::DataPlace>& places,
                   const std::vector<data::Source>& sources) {
  std::vector<std::string> saved, given;
  for (const files::DataPlace& place : places) saved.push_back(place.source);
  for (const data::Source& source : sources) given.push_back(source.name);
  if (saved != given)
    user_error(
        "--resume {}: the checkpoint draws from {}, the job from {}. Name the same sources in the same order (their "
        "weights may change); {}.",
        resumed, words(saved), words(given), kNewData);
}

// Earlier versions kept no sizes.
bool same_size(const files::DataPlace& place, const data::CorpusSize& size) {
  return place.documents == 0 || data::CorpusSize{place.documents, place.tokens} == size;
}

}  // namespace

std::vector<files::DataPlace> places_of(const std::vector<data::Source>& sources, data::Cursor cursor) {
  if (cursor.empty()) cursor.resize(sources.size());
  check(cursor.size() == sources.size(), "a cursor of {} places, but {} sources", cursor.size(), sources.size());
  const std::vector<data::CorpusSize> sizes = data::sizes_of(sources);
  std::vector<files::DataPlace> places;
  for (size_t s = 0; s < sources.size(); ++s)
    places.push_back({.source = sources[s].name,
                      .epoch = cursor[s].epoch,
                      .position = cursor[s].position,
                      .offset = cursor[s].offset,
                      .drawn = cursor[s].drawn,
                      .documents = sizes[s].documents,
                      .tokens = sizes[s].tokens});
  return places;
}

ResumedData resumed_data(const std::string& resumed, const std::vector<files::DataPlace>& places,
                         const std::vector<data::Source>& sources, bool new_data) {
  if (!new_data) require_names(resumed, places, sources);
  const std::vector<data::CorpusSize> sizes = data::sizes_of(sources);
  ResumedData result;
  std::vector<std::string> begin, go_on;
  for (size_t s = 0; s < sources.size(); ++s) {
    const bool has_name = s < places.size() && places[s].source == sources[s].name;
    if (has_name && same_size(places[s], sizes[s])) {
      const files::DataPlace& place = places[s];
      result.cursor.push_back({place.epoch, place.position, place.offset, place.drawn});
      go_on.push_back(sources[s].name);
      continue;
    }
    if (!new_data)
      user_error(
          "--resume {}: the checkpoint's place is in a corpus of {} documents with {} tokens, but {} has {} with {}: "
          "others would be drawn than were left. Resume with that corpus; {}.",
          resumed, places[s].documents, places[s].tokens, sources[s].corpus.folder(), sizes[s].documents,
          sizes[s].tokens, kNewData);
    result.cursor.emplace_back();
    begin.push_back(sources[s].name);
  }
  if (begin.empty() && sources.size() == places.size()) return result;
  for (data::Place& place : result.cursor) place.drawn = 0;
  if (!begin.empty()) result.changed = fmt::format("{} from the beginning", named(begin));
  if (!go_on.empty())
    result.changed +=
        fmt::format("{}{} from the place where the checkpoint stopped", begin.empty() ? "" : "; ", named(go_on));
  return result;
}

}  // namespace switchyard::train
