"""A gateway's nginx beside stand-ins of engines and router: programs of the standard library, for a throwaway host."""
