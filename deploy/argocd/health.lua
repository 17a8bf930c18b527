-- Health of lockstep.dev resources for Argo CD. All four kinds speak by the same conditions, so one script serves them.
-- What is under way is Progressing even while a member is down for it: a rolling update must not fail a sync.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function holds(type)
  return conditions[type] ~= nil and conditions[type].status == "True"
end

local function message(type, otherwise)
  local condition = conditions[type]
  if condition == nil or condition.message == nil or condition.message == "" then
    return otherwise
  end
  return condition.message
end

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = message("Reconciling", "Being deleted") }
end
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not looked at this generation yet" }
end
if holds("Stalled") then
  return { status = "Degraded", message = message("Stalled", "Stalled") }
end
if holds("Paused") then
  return { status = "Suspended", message = message("Paused", "Paused") }
end
if holds("Reconciling") then
  return { status = "Progressing", message = message("Reconciling", "Reconciling") }
end
if holds("Ready") then
  return { status = "Healthy", message = message("Ready", "Ready") }
end
if holds("Degraded") then
  return { status = "Degraded", message = message("Degraded", "Degraded") }
end
return { status = "Progressing", message = message("Ready", "Not ready yet") }
