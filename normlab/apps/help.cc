#include "normlab/apps/help.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "normlab/base/nearest.h"
#include "normlab/base/text.h"

namespace normlab::apps {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 24;  // where descriptions begin

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return Entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Entry(command->get_name(), command->get_description());
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 || option->get_type_name().empty() ? ""
                                                                           : " " + option->get_type_name();
  }

 private:
  static std::string Entry(const std::string& name, const std::string& description) {
    const std::string indent(kIndent, ' ');
    const std::string head = "  " + name;
    if (head.size() + 2 > kIndent) return head + "\n" + Wrap(description, kColumns, indent, indent);
    return Wrap(description, kColumns, head + std::string(kIndent - head.size(), ' '), indent);
  }
};

std::vector<std::string> CommandNames(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The parser's own sentences speak of "At Most 1 required"; each begins with the option, or ends with what
// was not expected.
std::string InOurWords(const CLI::ParseError& error) {
  const std::string text = error.what();
  const size_t colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::string before = text.substr(0, colon), after = text.substr(colon + 2);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return "\"" + after + "\" is not expected here; names of options begin with --";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return text;
  if (after.starts_with("At Most")) return before + " is given more than once; give it once";
  return before + " is given without its value";
}

}  // namespace

std::shared_ptr<CLI::Formatter> MakeHelpFormatter() { return std::make_shared<HelpFormatter>(); }

std::string UsageMessage(const CLI::App& program, const CLI::ParseError& error, int argc,
                         const char* const* argv) {
  const std::vector<std::string> commands = CommandNames(program);
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool known = std::ranges::find(commands, first) != commands.end();
  if (first.empty())
    return "name a command: compare, report, train, list, duel or bench; see `normlab --help`";
  if (!known && !first.starts_with('-'))
    return "unknown command " + UnknownName(first, commands) + "; see `normlab --help`";

  // `bench` has commands of its own.
  const CLI::App* command = known ? program.get_subcommand(std::string(first)) : &program;
  std::string path = known ? "normlab " + std::string(first) : "normlab";
  if (const std::vector<std::string> nested = CommandNames(*command); known && !nested.empty()) {
    const std::string_view second = argc > 2 ? argv[2] : "";
    if (std::ranges::find(nested, second) != nested.end()) {
      command = command->get_subcommand(std::string(second));
      path += " " + std::string(second);
    } else if (!second.starts_with('-')) {
      std::string names;
      for (const std::string& name : nested) names += (names.empty() ? "" : " or ") + name;
      return (second.empty() ? "name what to " + std::string(first) + ": " + names
                             : "unknown command " + UnknownName(second, nested)) +
             "; see `" + path + " --help`";
    }
  }
  const CLI::App& at = *command;
  const std::string see = "; see `" + path + " --help`";
  std::vector<std::string> options;
  for (const CLI::Option* option : at.get_options())
    for (const std::string& name : option->get_lnames())
      if (!option->get_group().empty()) options.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument =
        std::string_view(argv[i]).substr(0, std::string_view(argv[i]).find('='));
    if (!argument.starts_with("--") || argument.size() < 3) continue;
    if (at.get_option_no_throw(std::string(argument)) != nullptr) continue;
    std::string text = "unknown option \"" + Printable(argument) + "\"";
    if (const auto nearest = Nearest(argument, options)) text += "; did you mean \"" + *nearest + "\"?";
    return text + see;
  }
  return Printable(InOurWords(error)) + see;
}

}  // namespace normlab::apps
