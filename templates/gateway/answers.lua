-- Answers of nginx's own, in the shape of their protocol's errors, and what headers any answer has.
local protocols = require("protocols")
local requests = require("requests")
local settings = require("settings")
local paths = require("paths")

local answers = {}

local MESSAGES = {
  [400] = "the request is not one of HTTP",
  [403] = "this is not open to your address",
  [404] = "there is nothing here",
  [405] = "this method is not taken here",
  [408] = "the request came too slowly",
  [411] = "there is no body: send a JSON object",
  [413] = "the body is too large",
  [414] = "the address is too long",
  [415] = "the body must be JSON",
  [431] = "the headers are too large",
  [500] = "the gateway has failed; its log says why",
  [501] = "the body's transfer encoding is not known",
  [505] = "speak HTTP/1.1",
}
-- What clients are told of an engine's or the router's answer; all else of it is left out.
local PASSED = {
  ["allow"] = true, ["cache-control"] = true, ["connection"] = true, ["content-length"] = true,
  ["content-type"] = true, ["openai-processing-ms"] = true, ["retry-after"] = true, ["transfer-encoding"] = true,
  ["www-authenticate"] = true, ["x-request-id"] = true, ["access-control-allow-methods"] = true,
  ["access-control-allow-headers"] = true, ["access-control-max-age"] = true,
  ["access-control-allow-private-network"] = true,
}
-- What answers are, of engines' as of the gateway's own. An engine that somebody has taken over could otherwise send a
-- page, which a browser would run as one of the gateway's.
local KINDS = {
  ["application/json"] = true, ["text/event-stream"] = true, ["text/plain"] = true,
  ["application/openmetrics-text"] = true,
}
local PARAMETERS = { "^charset=utf%-8$", "^version=[%d.]+$" }
local UNKNOWN = "application/octet-stream"
-- Bytes that are kept of an error of the router's or an engine's which gets another shape.
local MOST_ERROR = 65536

-- A Content-Type with what of it is known.
local function kind_of(said)
  local kind, more = (said or ""):lower():match("^%s*([^;%s]+)%s*;?(.*)$")
  if not KINDS[kind or ""] then return UNKNOWN end
  for one in more:gmatch("[^;%s]+") do
    for _, pattern in ipairs(PARAMETERS) do
      if one:find(pattern) then kind = kind .. "; " .. one end
    end
  end
  return kind
end

-- An error as text, with its headers.
local function render(status, message, more)
  more = more or {}
  local text = protocols.render(status, message, more.code)
  local request = requests.current()
  if request then request.rendered = true end
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  -- cjson escapes slashes; messages name paths and URLs to people
  text = text:gsub("\\/", "/")
  ngx.header["Content-Length"] = #text
  ngx.header["Retry-After"] = more.retry
  return text
end

-- Answer with an error. Lua reads what is left of a body, and throws it away.
function answers.fail(status, message, more)
  ngx.print(render(status, message, more))
  return ngx.exit(ngx.HTTP_OK)
end

function answers.unknown()
  return answers.fail(404, paths.describe_unknown(ngx.var.uri), { code = "path_not_found" })
end

-- At the root, which some clients ask before anything else: where the gateway's API and its health are.
function answers.root()
  local base = paths.address()
  local text = ('{"openai_base_url": "%s/v1", "health": "%s/health"}\n'):format(base, base)
  ngx.header["Content-Type"] = "application/json"
  ngx.header["Content-Length"] = #text
  ngx.print(text)
end

function answers.unauthorized()
  ngx.header["WWW-Authenticate"] = "Bearer"
  local sent = ngx.var.http_authorization or ngx.var.http_x_api_key
  local message = sent and "this API key is not known here"
    or "send an API key: Authorization: Bearer KEY, or x-api-key: KEY"
  return answers.fail(401, message, { code = "invalid_api_key" })
end

-- What nginx, or the router by saying no, has refused: status, message and what belongs to them.
local function refusal(status)
  local var = ngx.var
  local asked = tonumber(var.rw_auth)
  if status == 403 and var.rw_refusal == "rate" then
    return 429, "this key has asked too often", { retry = var.rw_retry, code = "rate_limit_exceeded" }
  end
  if status == 500 and asked and asked >= 500 then status = 503 end
  if status >= 502 and status <= 504 then return 503, "nobody answers now: ask again", { retry = 2 } end
  local message = var.uri == "/_error/plain" and "speak TLS to this port" or MESSAGES[status]
  return status, message or "the request was refused"
end

function answers.failed()
  if ngx.status == 401 then return answers.unauthorized() end
  return answers.fail(refusal(ngx.status))
end

-- A page of nginx's own becomes the error that it stands for. Where a body is read nginx must not go to another location
-- with its refusal (error_page): what Lua has waiting there would go on in that one.
local function replace_page()
  local request = requests.current()
  if not request then return end
  local status, message, more = refusal(ngx.status)
  -- a body had no room in its file system: of what comes between two looks there was too much
  if status == 500 and request.arrival then
    status, message, more = 503, "too many large requests are under way", { retry = 2 }
  end
  request.refused, request.page = true, render(status, message, more)
end

-- Of every answer, before it is sent.
function answers.headers()
  if ngx.header["Content-Type"] == "text/html" and ngx.var.rw_socket == "" and not ngx.is_subrequest then replace_page() end
  -- a client waits for more after one below these, and would take what an engine goes on with for the answer, all of it
  if ngx.status < 200 or ngx.status > 599 then ngx.status = 502 end
  for name in pairs(ngx.resp.get_headers(0)) do
    if not PASSED[name:lower()] then ngx.header[name] = nil end
  end
  local header = ngx.header
  header["X-Content-Type-Options"] = "nosniff"
  if ngx.var.rw_socket ~= "" then
    -- an engine is asked with its own key, and has none of a client's to ask for
    header["WWW-Authenticate"] = nil
    header["Content-Type"] = header["Content-Type"] or kind_of(ngx.var.upstream_http_content_type)
  end
  if next(settings.origins) then
    header["Vary"] = "Origin"
    local origin = ngx.var.http_origin
    if origin and settings.origins[origin] then
      header["Access-Control-Allow-Origin"] = origin
      header["Access-Control-Expose-Headers"] = "Retry-After, X-Request-Id"
    end
  end
  local request = ngx.status >= 400 and not ngx.is_subrequest and requests.current()
  if request and not request.rendered and protocols.translates() then
    request.untranslated, request.left = {}, MOST_ERROR
    header["Content-Type"], header["Content-Length"] = "application/json", nil
  end
  local streamed = requests.current()
  -- the event that is left out was counted
  if streamed and streamed.hides_usage then header["Content-Length"] = nil end
  local kind = header["Content-Type"]
  if type(kind) == "string" and kind:find("^text/event%-stream") then
    -- for an nginx of the operator's on the way
    header["X-Accel-Buffering"] = "no"
  end
end

-- Put the error of the router or an engine, once all of it is there, in the shape of the request's protocol.
function answers.translate()
  local request = requests.current()
  if not request or not request.untranslated then return end
  local piece = (ngx.arg[1] or ""):sub(1, request.left)
  if piece ~= "" then
    request.left = request.left - #piece
    table.insert(request.untranslated, piece)
  end
  ngx.arg[1] = ngx.arg[2] and protocols.translate(ngx.status, table.concat(request.untranslated)) or nil
end

-- The text of a page that was replaced, or of an error.
function answers.page()
  local request = requests.current()
  if not request or not request.page then return answers.translate() end
  ngx.arg[1], ngx.arg[2] = request.page, true
  request.page = ""
end

return answers
