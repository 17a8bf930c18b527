import tseslint from "typescript-eslint";

/** Import arrows (docs/architecture.md): a folder may import only what is left of its arrow. */
const forbid = (folders, message) => ({
  group: folders.flatMap((f) => [`@lockstep/${f}`, `@lockstep/${f}/*`, `**/${f}/src/**`]),
  message,
});
const nobodyImports = forbid(["test", "bench", "operator"], "nothing imports test, bench or operator");
const arrows = (files, folders, message) => ({
  files,
  rules: {
    "no-restricted-imports": ["error", { patterns: [nobodyImports, forbid(folders, message)] }],
  },
});

export default tseslint.config(
  { ignores: ["**/node_modules/**", "**/dist/**", "proto/src/gen/**", "**/*.js", "**/*.mjs"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { project: "./tsconfig.json", tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "max-lines": ["error", { max: 600 }],
      "max-lines-per-function": ["error", { max: 70, skipBlankLines: true, skipComments: true }],
      "max-depth": ["error", 4],
      "max-params": ["error", 4],
      "no-console": "error",
      eqeqeq: "error",
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/switch-exhaustiveness-check": [
        "error",
        { considerDefaultExhaustiveForUnions: true },
      ],
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowBoolean: true },
      ],
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/no-unnecessary-condition": ["error", { allowConstantLoopConditions: true }],
      "@typescript-eslint/unified-signatures": "off",
      "@typescript-eslint/no-extraneous-class": "off",
    },
  },
  arrows(["proto/src/**"], ["gateway", "client", "cell", "router"], "proto imports nothing of ours"),
  arrows(["gateway/src/**"], ["client", "cell", "router"], "gateway imports only proto"),
  arrows(["client/src/**"], ["gateway", "cell", "router"], "client imports only proto"),
  arrows(["cell/src/**"], ["client", "router"], "cell imports only proto and gateway"),
  arrows(
    ["cli/src/**"],
    ["gateway", "cell", "router"],
    "cli imports only proto and client; it starts members as processes",
  ),
  arrows(
    ["operator/src/**"],
    ["gateway", "client", "cell", "router", "cli"],
    "operator imports only proto: it talks to cells through their admin API",
  ),
  {
    files: ["operator/src/plan/**/*.ts", "operator/src/resources/**/*.ts", "operator/src/namespaces/plan.ts"],
    ignores: ["**/*.test.ts", "**/testing/**"],
    rules: {
      "no-restricted-globals": [
        "error",
        { name: "Promise", message: "pure: the controller does the waiting" },
        { name: "process", message: "pure: decided by the observation alone" },
      ],
      "no-restricted-properties": [
        "error",
        { object: "Math", property: "random", message: "pure: decided by the observation alone" },
        { object: "Date", property: "now", message: "pure: the observation says what time it is" },
      ],
      "no-restricted-syntax": ["error", { selector: "AwaitExpression", message: "pure: no await" }],
    },
  },
  {
    files: ["cell/src/raft/**/*.ts", "cell/src/machine/**/*.ts"],
    ignores: ["**/*.test.ts", "**/testing/**"],
    rules: {
      "no-restricted-globals": [
        "error",
        { name: "Date", message: "pure: time arrives as tick() or as a timestamp in a command" },
        { name: "Promise", message: "pure: no promises; the replica loop does the waiting" },
      ],
      "no-restricted-properties": [
        "error",
        { object: "Math", property: "random", message: "pure: use the injected seeded generator" },
      ],
      "no-restricted-syntax": ["error", { selector: "AwaitExpression", message: "pure: no await" }],
    },
  },
  {
    files: ["cell/src/raft/**/*.ts"],
    ignores: ["**/*.test.ts", "**/testing/**"],
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            {
              group: ["node:*", "@lockstep/*", "../machine/*", "../wal/*", "../store/*", "../replica/*"],
              message: "raft imports nothing but itself and invariant.ts",
            },
          ],
        },
      ],
    },
  },
  {
    files: ["**/*.test.ts", "test/**/*.ts", "**/testing/**"],
    rules: {
      "max-lines-per-function": "off",
      "max-params": "off",
      "@typescript-eslint/no-floating-promises": [
        "error",
        {
          allowForKnownSafeCalls: [
            { from: "package", name: ["it", "describe", "test", "suite"], package: "node:test" },
          ],
        },
      ],
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
  {
    files: ["**/main.ts", "scripts/**/*.ts", "cli/src/**/*.ts", "bench/src/**/*.ts", "e2e/src/**/*.ts"],
    rules: { "no-console": "off" },
  },
);
