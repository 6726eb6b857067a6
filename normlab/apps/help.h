#pragma once
// The layout of --help: options in a left column, their meaning wrapped within 80 columns.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

namespace normlab::apps {

std::shared_ptr<CLI::Formatter> MakeHelpFormatter();

// One line that says what is wrong with a command line, for the parser's exception, with the nearest known
// name and where to read on.
std::string UsageMessage(const CLI::App& program, const CLI::ParseError& error, int argc,
                         const char* const* argv);

}  // namespace normlab::apps
