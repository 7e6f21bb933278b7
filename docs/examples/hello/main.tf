# The smallest module that shows all there is to see: a resource, an output, and a provisioner whose
# words appear in the log. It needs no provider but the one that is built in.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  description = "Who is greeted."
  type        = string
  default     = "world"
}

resource "terraform_data" "greeting" {
  input            = "Hello, ${var.name}!"
  triggers_replace = [var.name]

  provisioner "local-exec" {
    command = "echo \"$GREETING\""
    environment = {
      GREETING = self.input
    }
  }
}

output "greeting" {
  description = "What was said."
  value       = terraform_data.greeting.output
}
