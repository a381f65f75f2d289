// The place at which a run draws from its data: what a checkpoint keeps of it, and where a resumed run goes on.
#pragma once

#include <string>
#include <vector>

#include "data/sampler.hpp"
#include "data/sources.hpp"
#include "files/checkpoint_folder.hpp"

namespace switchyard::train {

/// The place in each source. cursor: empty before the first step.
std::vector<files::DataPlace> places_of(const std::vector<data::Source>& sources, data::Cursor cursor);

/// cursor: where a resumed run draws next. changed: which sources begin and which go on, in words; empty if all go on.
struct ResumedData {
  data::Cursor cursor;
  std::string changed;
};

/// The places of a checkpoint in the sources of the job that is resumed. A source is the one that the checkpoint knows
/// if it has the same number (which decides the order of its documents), name and size. resumed: as the user named the
/// checkpoint. new_data: all others begin, and shares of tokens are counted anew.
/// errors  UserError without new_data: other sources than the checkpoint's
ResumedData resumed_data(const std::string& resumed, const std::vector<files::DataPlace>& places,
                         const std::vector<data::Source>& sources, bool new_data);

}  // namespace switchyard::train
