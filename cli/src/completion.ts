import type { Command } from "commander";
import { usageError } from "./exit-codes.ts";

export type Shell = "bash" | "zsh" | "fish";
export const SHELLS: readonly Shell[] = ["bash", "zsh", "fish"];

interface CommandWords {
  /** `""` for the program itself, else `member promote`. */
  readonly path: string;
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly { readonly long: string; readonly description: string }[];
}

/** Every command's words, read off the program itself, so that completion cannot fall behind. */
export function commandWords(program: Command): CommandWords[] {
  const all: CommandWords[] = [];
  const walk = (command: Command, path: string): void => {
    all.push({
      path,
      subcommands: command.commands.map((sub) => ({ name: sub.name(), description: sub.summary() })),
      options: command.options.flatMap(({ long, description }) =>
        long === undefined ? [] : [{ long, description }],
      ),
    });
    for (const sub of command.commands) walk(sub, path === "" ? sub.name() : `${path} ${sub.name()}`);
  };
  walk(program, "");
  return all;
}

export function completionScript(program: Command, shell: string): string {
  const words = commandWords(program);
  switch (shell) {
    case "bash":
      return bash(words);
    case "zsh":
      return `#compdef lockstep\nautoload -U +X bashcompinit && bashcompinit\n${bash(words)}`;
    case "fish":
      return fish(words);
    default:
      throw usageError(`there is no completion for "${shell}"`, `There is for ${SHELLS.join(", ")}.`);
  }
}

function bash(words: readonly CommandWords[]): string {
  const globals = words.find(({ path }) => path === "")?.options.map(({ long }) => long) ?? [];
  const cases = words.map(({ path, subcommands, options }) => {
    const own = path === "" ? [] : options.map(({ long }) => long);
    const candidates = [...subcommands.map(({ name }) => name), ...own, ...globals, "--help"];
    return `    "${path}") words="${[...new Set(candidates)].join(" ")}" ;;`;
  });
  const paths = words.filter(({ path }) => path !== "").map(({ path }) => `"${path}"`);
  return `# lockstep completion. Load it with: source <(lockstep completion bash)
_lockstep() {
  local current="\${COMP_WORDS[COMP_CWORD]}" path="" word next known words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ "$word" == "--" ]]; then return; fi
    next="\${path:+$path }$word"
    for known in ${paths.join(" ")}; do
      if [[ "$known" == "$next" ]]; then path="$next"; fi
    done
  done
  case "$path" in
${cases.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _lockstep lockstep
`;
}

function fish(words: readonly CommandWords[]): string {
  const quote = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = [
    "# lockstep completion. Load it with: lockstep completion fish | source",
    "complete -c lockstep -f",
  ];
  for (const { path, subcommands, options } of words) {
    const names = subcommands.map(({ name }) => name).join(" ");
    const parts = path === "" ? [] : path.split(" ");
    const seen = parts.map((part) => `__fish_seen_subcommand_from ${part}`);
    const unseen = names === "" ? [] : [`not __fish_seen_subcommand_from ${names}`];
    const condition = [...seen, ...unseen].join("; and ");
    for (const { name, description } of subcommands) {
      lines.push(`complete -c lockstep -n ${quote(condition)} -a ${name} -d ${quote(description)}`);
    }
    for (const { long, description } of options) {
      const when = seen.length === 0 ? "" : `-n ${quote(seen.join("; and "))} `;
      lines.push(`complete -c lockstep ${when}-l ${long.replace(/^--/, "")} -d ${quote(description)}`);
    }
  }
  return `${lines.join("\n")}\n`;
}
