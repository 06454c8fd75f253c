"""What the page of a job is made of, and the page that submits one."""
