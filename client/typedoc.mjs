// `npm run api-docs` writes the reference; `npm run check` looks whether it would be whole.
import manifest from "./package.json" with { type: "json" };

export default {
  name: manifest.name,
  // All that the package exports: what is missing there is missing here.
  entryPoints: Object.values(manifest.exports),
  tsconfig: "tsconfig.api.json",
  // `npm run check` has checked the types before.
  skipErrorChecking: true,
  readme: "README.md",
  out: "../.cache/api-docs",
  disableSources: true,
  excludeInternal: true,
  excludePrivate: true,
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
  validation: { notExported: true, invalidLink: true, invalidPath: true, notDocumented: true },
  requiredToBeDocumented: ["Class", "Interface", "TypeAlias", "Function", "Variable", "CallSignature"],
};
