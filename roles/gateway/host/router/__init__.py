"""The gateway's router: says who a caller is and which model a request goes to, and never carries a reply."""
