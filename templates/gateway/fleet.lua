-- Requests of other boxes' gateways for instances of this one. Their gateways have judged keys and fields, and count.
local answers = require("answers")
local counts = require("counts")
local instances = require("instances")
local paths = require("paths")
local requests = require("requests")
local settings = require("settings")

local fleet = {}

-- nginx closes the connection without a word: the other gateway asks another instance, as no engine has the request.
local NO_ANSWER = 444
-- Seconds after which to come again.
local LATER = 10

function fleet.unknown()
  return answers.fail(404, "this port has instances that other boxes use: POST /INSTANCE/v1/...", { code = "path_not_found" })
end

-- Of each request: who sends it, and to which instance it goes.
function fleet.check()
  if ngx.req.is_internal() then return end
  local request, var = requests.begin(), ngx.var
  request.key = ""
  if var.rw_front == "" then
    return answers.fail(403, "this gateway is not declared to use instances of this box", { code = "not_declared" })
  end
  local instance, path = var.request:match("^POST /([a-z0-9-]+)/v1/([a-z_/]+) HTTP/1%.[01]$")
  local fronts = settings.lent[instance or ""]
  if not fronts or not fronts[var.rw_front] or paths.method("/v1/" .. path) ~= "POST" then return fleet.unknown() end
  if instances.is_box_out() or not instances.is_ready(instance) then return ngx.exit(NO_ANSWER) end
  ngx.req.clear_header("Upgrade")
  request.instance = instance
  counts.take(request, "lent")
  counts.take(request, "instance " .. instance)
  request.seat = instances.aim(instance)
  counts.take(request, "seat " .. request.seat)
  var.rw_path = path
  return ngx.exec("@lent")
end

-- After the instance has given no answer at all. One that has got the request and is not being stopped, which takes its
-- link away first, has ended with it: that is an answer, or the request would end another instance, too.
function fleet.unanswered()
  local request = requests.current()
  if instances.is_unsent(ngx.var.upstream_connect_time) or not instances.is_there(request.instance) then
    return ngx.exit(NO_ANSWER)
  end
  return answers.fail(503, "the instance ended before it answered, and the request was not sent to another", { retry = LATER })
end

for name, phase in pairs(fleet) do
  -- as in gateway.lua: what fails is said at the level that passes nginx's log
  fleet[name] = function(...)
    local succeeded, result = xpcall(phase, debug.traceback, ...)
    if succeeded then return result end
    ngx.log(ngx.ALERT, result)
    error(result, 0)
  end
end

return fleet
