package main

import "slices"

func apiScenarios() []scenario {
	return slices.Concat(rangeScenarios, writeScenarios, txnScenarios, leaseScenarios, watchScenarios,
		progressScenarios, recipeServiceScenarios, maintenanceScenarios, compactScenarios, faultScenarios)
}
