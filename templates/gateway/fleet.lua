-- Requests of other boxes' gateways for instances of this one. Their gateways have judged keys and fields, and count.
local answers = require("answers")
local counts = require("counts")
local instances = require("instances")
local paths = require("paths")
local requests = require("requests")
local settings = require("settings")

local fleet = {}

-- nginx closes the connection without a word: the other gateway asks another instance, as no engine has the request.
-- Any answer would be the instance's to it, for a probe, too.
local NO_ANSWER = 444
-- Seconds after which to come again.
local LATER = 10

-- Close the connection; the log of this box has the reason.
local function refuse(reason)
  local request = requests.current() or requests.begin()
  request.refusal = reason
  return ngx.exit(NO_ANSWER)
end

function fleet.unknown()
  return refuse("no gateway uses this here")
end

-- After nginx has refused a client that is no gateway of the fleet, or does not speak HTTP by TLS.
function fleet.stranger()
  local verified = ngx.var.ssl_client_verify
  if not verified or verified == "SUCCESS" then return refuse("not HTTP with TLS") end
  return refuse("client certificate: " .. verified)
end

-- Of each request: who sends it, and to which instance it goes.
function fleet.check()
  if ngx.req.is_internal() then return end
  local request, var = requests.begin(), ngx.var
  local front = var.rw_front
  request.key = ""
  if front == "" then return refuse("this gateway is not declared to use instances of this box") end
  local instance, path = var.request:match("^POST /([a-z0-9-]+)/v1/([a-z_/]+) HTTP/1%.[01]$")
  local fronts = settings.lent[instance or ""]
  if not fronts or not fronts[front] or paths.method("/v1/" .. path) ~= "POST" then return fleet.unknown() end
  local standing = instances.standing(instance)
  if instances.is_box_out() then return refuse("a rollout changes this box") end
  if not standing then return refuse("the instance is not ready") end
  if standing == "last" and ngx.req.get_headers()["x-rw-last"] ~= "1" then
    return refuse("the instance is out of the rotation")
  end
  -- the other gateway has a bound of its own, and never comes to this one
  if counts.take(request, "front " .. front) > (settings.fronts[front] or 0) then
    return refuse("too many requests of this gateway are under way")
  end
  ngx.req.clear_header("Upgrade")
  request.instance = instance
  counts.take(request, "lent")
  counts.take(request, "instance " .. instance)
  request.seat = instances.aim(instance)
  counts.take(request, "seat " .. request.seat)
  var.rw_path = path
  return ngx.exec("@lent")
end

-- After the instance has given no answer at all. One that has got the request has ended with it, unless it was said
-- before that it is being stopped: that is an answer, or the request would end another instance, too.
function fleet.unanswered()
  local request = requests.current()
  if instances.may_go_on(request.seat) then return refuse("the instance is being stopped") end
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
