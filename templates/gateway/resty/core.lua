-- The first of Lua that nginx runs, in each start and each reload, is what it finds by this name; the module's own is next.
-- LuaJIT compiles what runs often from there on, into memory that may be executed, which the unit forbids: one start in
-- about a thousand ended nginx so ("runtime code generation failed, restricted kernel?").
jit.off()
jit.flush()
local name = ...
-- without the first place, which is this file's
local others = package.path:match(";(.*)$")
return assert(loadfile(assert(package.searchpath(name, others))))(name)
