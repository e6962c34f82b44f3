-- Passes an engine's stream on to a client that has a status already, and has waited for the engine to start: nginx's own
-- proxy begins each answer with a status. All that an engine sends is bounded, and anything but HTTP/1.1 ends the answer.
local clock = require("clock")

local relay = {}

-- Bytes of a head, as of nginx's proxy (proxy_buffer_size); lines of a head; bytes of the line before a chunk, and of all
-- that follows the last one.
local MOST_HEAD, MOST_HEADERS, MOST_SIZE_LINE, MOST_TRAILERS = 16384, 100, 256, 4096
-- Bytes that are read at once, and of a request's body that are sent at once.
local PIECE, SLICE = 16384, 65536
-- Digits of a length, and of a chunk's in hexadecimal.
local MOST_LENGTH, MOST_CHUNK = 15, 7
local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$"
-- Milliseconds to connect, for which an engine may take no byte of a request (one that computes, with all its threads, reads
-- the next one late), and between two looks at what a client or its key has become.
local CONNECT, STALL = 10000, 300000
relay.LOOK = 1000

local BROKEN = "the instance's answer is not HTTP"
relay.STALLED = "the instance does not take the request"

-- Length of the request's body, and the function that reads its next slice. No file is open between two of them: nginx ends
-- these threads where a client leaves, and a file would be open until Lua's memory is tidied.
local function open_body()
  local data = ngx.req.get_body_data()
  if data then
    local at = 1 - SLICE
    return #data, function()
      at = at + SLICE
      return at <= #data and data:sub(at, at + SLICE - 1) or nil
    end
  end
  local path, at = assert(ngx.req.get_body_file()), 0
  local function read(from, size)
    local file = assert(io.open(path, "rb"))
    local length = file:seek("end")
    file:seek("set", from)
    local slice = file:read(size)
    file:close()
    return slice, length
  end
  return select(2, read(0, 0)), function()
    local slice = read(at, SLICE)
    at = at + SLICE
    return slice
  end
end

-- Runs beside the thread that reads the answer, for an engine may answer before it has read all of a body that it refuses.
local function upload(sending, head, read)
  local sent, why = sending.socket:send({ head, read() or "" })
  sending.has_begun = sent ~= nil
  local slice = sent and read()
  while slice do
    ngx.sleep(0)
    sent, why = sending.socket:send(slice)
    slice = sent and read()
  end
  sending.is_stalled = why == "timeout"
end

-- The request on its way to the instance: `socket`, and later whether the instance has a part of it (`has_begun`) or takes no
-- more of it (`is_stalled`). Nothing where the instance takes no connection.
function relay.send(path)
  local sending = { socket = ngx.socket.tcp() }
  sending.socket:settimeouts(CONNECT, STALL, relay.LOOK)
  if not sending.socket:connect("unix:" .. ngx.var.rw_socket) then return nil end
  local var, length, read = ngx.var, open_body()
  local head = { "POST /v1/" .. path .. " HTTP/1.1", "Host: localhost", "Connection: close" }
  if var.rw_authorization ~= "" then head[#head + 1] = "Authorization: " .. var.rw_authorization end
  head[#head + 1] = "Content-Type: application/json"
  if var.http_accept then head[#head + 1] = "Accept: " .. var.http_accept end
  head[#head + 1] = "Content-Length: " .. ("%d"):format(length)
  sending.thread = ngx.thread.spawn(upload, sending, table.concat(head, "\r\n") .. "\r\n\r\n", read)
  return sending
end

function relay.close(sending)
  -- of one that is under way; a socket that is being written to cannot be closed
  ngx.thread.kill(sending.thread)
  sending.socket:close()
end

function relay.reader(socket)
  return { socket = socket, kept = "" }
end

-- Read more of what has been begun. Bytes that trickle in keep the caller no longer from its look than silence does.
local function more(reader)
  if clock.now() >= reader.look then return nil, "timeout" end
  local piece, why = reader.socket:receiveany(PIECE)
  if not piece then return nil, why end
  reader.kept = reader.kept .. piece
  return true
end

-- Up to the end of a line and without it; nothing, and why: "timeout" where it may yet come.
local function line(reader, most)
  while true do
    local first, last = reader.kept:find("\r\n", 1, true)
    if (first or #reader.kept) > most then return nil, BROKEN end
    if first then
      local found = reader.kept:sub(1, first - 1)
      reader.kept = reader.kept:sub(last + 1)
      return found
    end
    local came, why = more(reader)
    if not came then return nil, why end
  end
end

local function header(answer, text)
  local name, value = text:match("^([^:]+):[ \t]*(.-)[ \t]*$")
  if not name or not name:find(TOKEN) or value:find("%c") then return false end
  name = name:lower()
  if name == "content-type" then
    answer.kind = answer.kind or value
  elseif name == "content-length" then
    if answer.length or not value:find("^%d+$") or #value > MOST_LENGTH then return false end
    answer.length = tonumber(value)
  elseif name == "transfer-encoding" then
    if answer.is_chunked or value:lower() ~= "chunked" then return false end
    answer.is_chunked = true
  end
  return true
end

-- Status, kind and length of an answer; nothing, and why. It may be called again after "timeout".
function relay.head(reader)
  reader.look = clock.now() + relay.LOOK / 1000
  local _, last = reader.kept:find("\r\n\r\n", 1, true)
  while not last do
    if #reader.kept > MOST_HEAD then return nil, BROKEN end
    local came, why = more(reader)
    -- a connection that ends with a part of the request unread breaks in another way
    if not came then return nil, why == "timeout" and why or "closed" end
    _, last = reader.kept:find("\r\n\r\n", 1, true)
  end
  if last > MOST_HEAD then return nil, BROKEN end
  local text = reader.kept:sub(1, last - 2)
  reader.kept = reader.kept:sub(last + 1)
  local status, rest = text:match("^HTTP/1%.[01] ([2-5]%d%d)%f[%D][^\r\n]*\r\n(.*)$")
  if not status then return nil, BROKEN end
  local answer, number = { status = tonumber(status) }, 0
  for one in rest:gmatch("(.-)\r\n") do
    number = number + 1
    if number > MOST_HEADERS or not header(answer, one) then return nil, BROKEN end
  end
  if answer.length and answer.is_chunked then return nil, BROKEN end
  answer.left = answer.length
  return answer
end

-- Up to so many bytes of what is there, or comes.
local function some(reader, most)
  if reader.kept == "" then
    local came, why = more(reader)
    if not came then return nil, why end
  end
  local piece = reader.kept:sub(1, most)
  reader.kept = reader.kept:sub(#piece + 1)
  return piece
end

-- After the last chunk: headers of which none is used.
local function skip_trailers(reader, answer)
  while true do
    local found, why = line(reader, MOST_TRAILERS)
    if not found then return nil, why end
    answer.trailers = (answer.trailers or 0) + #found
    if answer.trailers > MOST_TRAILERS then return nil, BROKEN end
    if found == "" then return nil, "end" end
  end
end

local function chunked(reader, answer)
  if answer.is_last then return skip_trailers(reader, answer) end
  if answer.is_over then
    local found, why = line(reader, 1)
    if not found then return nil, why end
    if found ~= "" then return nil, BROKEN end
    answer.is_over = nil
  end
  if not answer.left then
    local found, why = line(reader, MOST_SIZE_LINE)
    if not found then return nil, why end
    local size = found:match("^(%x+)[ \t]*$") or found:match("^(%x+)[ \t]*;")
    if not size or #size:gsub("^0+", "") > MOST_CHUNK then return nil, BROKEN end
    answer.left = tonumber(size, 16)
    if answer.left == 0 then
      answer.is_last = true
      return skip_trailers(reader, answer)
    end
  end
  local piece, why = some(reader, answer.left)
  if not piece then return nil, why end
  answer.left = answer.left - #piece
  if answer.left == 0 then answer.left, answer.is_over = nil, true end
  return piece
end

-- The next piece of an answer; nothing, and "end" after its last one, "timeout" where it may yet come, or why it is cut off.
function relay.piece(reader, answer)
  reader.look = clock.now() + relay.LOOK / 1000
  if answer.is_chunked then return chunked(reader, answer) end
  if answer.left == 0 then return nil, "end" end
  local piece, why = some(reader, answer.left or PIECE)
  if not piece then return nil, (why == "closed" and not answer.left) and "end" or why end
  if answer.left then answer.left = answer.left - #piece end
  return piece
end

return relay
