// A pipeline schedule as a JSON file that the program prints and a person may write: docs/schedule-format.md.
#pragma once

#include <string>

#include "config/json_node.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::config {

/// A page of JSON with a line per stage.
std::string to_json(const schedule::Schedule& schedule);

/// The schedule in a JSON text of any content and size: memory stays proportional to it. origin: its file name in
/// messages. UserError names the JSON path and how to fix it; for an order with missing items it names one, for a
/// deadlock it prints the cycle.
schedule::Schedule schedule_from_json(const std::string& text, const std::string& origin);
/// The same as a part of another file.
schedule::Schedule schedule_from_json(const Node& node);

}  // namespace switchyard::config
